"""Every example as PyTorch has it: values, gradients and their gradients, what PyTorch asks of an operator, batches,
`torch.func` and `torch.compile`. All of them are slow; a draw is not."""

import shutil

import pytest

torch = pytest.importorskip("torch")

from tests.interop.examples import EXAMPLES  # noqa: E402

pytestmark = [pytest.mark.tvm, pytest.mark.torch]
FEW = [pytest.param(n, marks=[] if n == "lookup" else pytest.mark.slow) for n in EXAMPLES]
ALL = [pytest.param(n, marks=pytest.mark.slow) for n in EXAMPLES]


def tensors_of(found):
    return found if isinstance(found, tuple) else (found,)


def pairs(name, dtype):
    """Arguments twice, so that each side has gradients of its own."""
    example = EXAMPLES[name]
    return example, example.draw(dtype), example.draw(dtype)


@pytest.mark.parametrize("name", FEW)
def test_values_and_gradients(name):
    example, mine, theirs = pairs(name, torch.float64)
    found, expected = tensors_of(example.operator(*mine)), tensors_of(example.torch(*theirs))
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b)
    found[0].square().sum().backward()
    expected[0].square().sum().backward()
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(a, torch.Tensor) and a.requires_grad:
            torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_other_widths(name, dtype):
    example, mine, _ = pairs(name, dtype)
    found = tensors_of(example.operator(*mine))[0]
    wide = [a.detach().float() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in mine]
    expected = tensors_of(example.torch(*wide))[0]
    rtol = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}[dtype]
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", ALL)
def test_opcheck(name):
    example = EXAMPLES[name]
    args, op = example.draw(), example.operator
    wanted = [n for n, a in enumerate(args) if isinstance(a, torch.Tensor) and a.requires_grad]
    for overload, given in ((op.op, args), (op.saving, [*args, wanted])):
        assert set(torch.library.opcheck(overload, tuple(given)).values()) == {"SUCCESS"}
    values = [a for a in args if isinstance(a, torch.Tensor)]
    case = op.case(args)
    assert set(torch.library.opcheck(op.derived, (values, case.text)).values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", ALL)
def test_gradcheck_and_gradgradcheck(name):
    example = EXAMPLES[name]
    args = example.draw()

    def smooth(*args):
        return tensors_of(example.operator(*args))[0]

    assert torch.autograd.gradcheck(smooth, args)
    assert torch.autograd.gradgradcheck(smooth, args)


@pytest.mark.parametrize("name", ALL)
def test_every_gradient_alone(name):
    """Only what is asked for is computed, and it is the same."""
    example, mine, theirs = pairs(name, torch.float64)
    for n, a in enumerate(mine):
        if isinstance(a, torch.Tensor) and a.is_floating_point():
            alone = [v.detach() if isinstance(v, torch.Tensor) and k != n else v for k, v in enumerate(mine)]
            (found,) = torch.autograd.grad(tensors_of(example.operator(*alone))[0].sum(), [a])
            (expected,) = torch.autograd.grad(tensors_of(example.torch(*theirs))[0].sum(), [theirs[n]])
            torch.testing.assert_close(found, expected)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of PyTorch's own form, for want of a batching rule
@pytest.mark.parametrize("name", ALL)
def test_torch_func(name):
    example = EXAMPLES[name]
    args = example.draw(requires_grad=False)
    floats = [n for n, a in enumerate(args) if isinstance(a, torch.Tensor) and a.is_floating_point()]

    def over_floats(f):
        """The first result as a function of the float tensors alone."""

        def g(*values):
            given = list(args)
            for n, v in zip(floats, values, strict=True):
                given[n] = v
            return tensors_of(f(*given))[0]

        return g

    func, given = torch.func, [args[n] for n in floats]
    mine, theirs = over_floats(example.operator), over_floats(example.torch)

    def loss_of(f):
        return lambda *values: f(*values).square().sum()

    every = tuple(range(len(given)))
    torch.testing.assert_close(func.grad(loss_of(mine), every)(*given), func.grad(loss_of(theirs), every)(*given))
    y, pull = func.vjp(mine, *given)
    torch.testing.assert_close(pull(y), func.vjp(theirs, *given)[1](y))
    torch.testing.assert_close(func.jacrev(mine)(*given), func.jacrev(theirs)(*given))
    for n in every:
        many = [torch.stack([v, 2 * v, -v], 1) if k == n else v for k, v in enumerate(given)]
        dims = tuple(1 if k == n else None for k in every)
        torch.testing.assert_close(func.vmap(mine, dims, 1)(*many), func.vmap(theirs, dims, 1)(*many))
        gradients = [func.vmap(func.grad(loss_of(f), n), dims)(*many) for f in (mine, theirs)]
        torch.testing.assert_close(*gradients)
        batches = [func.grad(loss_of(func.vmap(f, dims)), n)(*many) for f in (mine, theirs)]
        torch.testing.assert_close(*batches)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Inductor as it is imported
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor compiles with g++")
@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_without_breaks(name, dynamic):
    example, mine, theirs = pairs(name, torch.float64)

    def step(f):
        return lambda *args: tensors_of(f(*args))[0].sin().square().sum()

    torch.compiler.reset()
    found = torch.compile(step(example.operator), fullgraph=True, dynamic=dynamic)(*mine)
    expected = step(example.torch)(*theirs)
    torch.testing.assert_close(found, expected)
    found.backward()
    expected.backward()
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(a, torch.Tensor) and a.requires_grad:
            torch.testing.assert_close(a.grad, b.grad)
