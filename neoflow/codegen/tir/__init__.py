"""What holds for any device: TIR said shortly, values of expressions, scalar functions, reducers."""
