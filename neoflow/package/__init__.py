"""Packages: programs compiled ahead of time, run without a compiler.

A package is a folder, `NAME.nflib`: what is in it, with checksums (`manifest`), functions, plans and shapes
(`program.json`, see `contents`), a library of machine code, a C header, and parameters as safetensors.

manifest, contents (what the files say, and how they are read) · loading (`nf.load`; needs no compiler and nothing of
the language) · image (the memory of an instance in C) · header (the C header) · saving (`f.save`)
"""
