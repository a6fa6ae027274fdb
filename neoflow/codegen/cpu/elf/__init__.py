"""A linker for object files: x86-64 ELF relocatable in, shared library out.

LLVM gives object files; a library that `dlopen` takes is normally made by `cc` or `ld`, which a user's machine need
not have. What LLVM emits for kernels needs little of a linker: place sections, apply a few kinds of relocation, give
undefined symbols (a handful of libm's) a slot that the dynamic loader fills, write the dynamic tables, and section
headers for other linkers and debuggers. Formats and numbers are those of the System V ABI, x86-64 supplement, and, for
unwinding, of the Linux Standard Base.
"""

from neoflow.codegen.cpu.elf.link import link

__all__ = ["link"]
