"""The shared library of a package for a GPU: the C functions, and the calls of the driver that they make, as tables.

NAME *NAME_open(int32_t ordinal)                 an instance: its memory on the GPU, its modules, a graph a function
int32_t NAME_FUNCTION(NAME *, arrays...)         one run of a plan, from arrays on the host to arrays on the host
int32_t NAME_get(const NAME *, int32_t number, void *)     int32_t NAME_set(NAME *, int32_t number, const void *)
void *NAME_parameter(NAME *, int32_t number)     const char *NAME_message(int32_t number)     void NAME_close(NAME *)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

from neoflow.codegen.cpu.elf import link
from neoflow.codegen.cpu.written import assembled, c_function, content, numbers, pointers, words

ITSELF, DATA, ARGUMENTS = 8, 16, 64
"""Places in an instance: of its own address, of that of the library's data, of the arguments of a call."""
OWN = IS_OTHER, FILL = "is_other", "fill"
"""The library's own functions, the first of all: whether a GPU is none of this package's; words to another place."""
OF_DRIVER, IGNORED = 0, -1
"""What the failing of a command means where it is no message of the package: what the driver says, and nothing."""
DRIVER = "libcuda.so.1"
MOST_ARGUMENTS = 11


class Word(NamedTuple):
    """An argument: the word at a place of an instance (that at 0 is 0), and what is added to it."""

    place: int = 0
    added: int = 0


class Command(NamedTuple):
    """A call of the driver, or of a function of the library's own. needs: the place of a word; where that is 0, nothing
    is called. failure: the message of its failing, or one of the two above."""

    function: str
    arguments: tuple[Word, ...]
    needs: int = ITSELF
    failure: int = OF_DRIVER


@dataclass(frozen=True, eq=False)
class CFunction:
    """A function of a package. arguments: how many arrays it takes. status: where its status words are in an instance;
    first: for each of them what is added to it, to be the number of a message."""

    name: str
    arguments: int
    commands: tuple[Command, ...]
    status: int
    first: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Commands:
    """A package as `commands.ll` runs it.

    nbytes: of an instance on the host. functions: what commands call, `OWN` first; their addresses are from
    `functions_at` on. memory: the place of the word that is the address of all memory on the GPU. parameters: of each,
    where in that it is, and its bytes. no_driver, old_driver, no_parameter: numbers of messages. opening, closing: what
    is done once; getting, setting: what moves a parameter, the arguments being its address, an array's, and bytes.
    head: what a file of parameters begins with.
    """

    name: str
    nbytes: int
    functions: tuple[str, ...]
    functions_at: int
    memory: int
    parameters: tuple[tuple[int, int], ...]
    messages: tuple[str, ...]
    no_driver: int
    old_driver: int
    no_parameter: int
    opening: tuple[Command, ...]
    closing: tuple[Command, ...]
    getting: tuple[Command, ...]
    setting: tuple[Command, ...]
    entries: tuple[CFunction, ...]
    data: bytes
    head: bytes


def build_commands(made: Commands) -> bytes:
    """The library, as the bytes of its file; its SONAME is that of the package. It needs the C library alone."""
    return link([assembled(commands_source(made))], f"libnf_{made.name}.so")


def commands_source(made: Commands) -> str:
    """LLVM IR of what a C program calls."""
    text = files("neoflow.codegen.cpu").joinpath("commands.ll").read_text()
    values = {
        "INSTANCE_BYTES": made.nbytes,
        "FUNCTIONS_AT": made.functions_at,
        "FUNCTION_COUNT": len(made.functions),
        "MEMORY_AT": made.memory,
        "PARAMETER_COUNT": len(made.parameters),
        "MESSAGE_COUNT": len(made.messages),
        "NO_DRIVER": made.no_driver,
        "OLD_DRIVER": made.old_driver,
        "NO_PARAMETER": made.no_parameter,
        "CALL\n": _call(),
    }
    for word, value in values.items():
        text = text.replace(word, str(value))
    lists = {"opening": made.opening, "closing": made.closing, "getting": made.getting, "setting": made.setting}
    lists |= {f"commands_{n}": entry.commands for n, entry in enumerate(made.entries)}
    asked = made.functions[len(OWN) :]
    lines = [
        f"@data = internal constant {content(made.data)}, align 64",
        f"@head = internal constant {content(made.head)}",
        words("driver_file", DRIVER),
        words("driver_words", "cuGetErrorString"),
        *(words(f"name_{f}", f) for f in asked),
        pointers("function_names", ["null" for _ in OWN] + [f"@name_{f}" for f in asked]),
        numbers("parameters", "i64", [n for row in made.parameters for n in row]),
        *(words(f"message_{n}", m) for n, m in enumerate(made.messages)),
        pointers("messages", [f"@message_{n}" for n in range(len(made.messages))]),
        *(line for name, commands in lists.items() for line in _list(name, commands, made)),
        *(line for n, entry in enumerate(made.entries) for line in _entry(n, entry)),
    ]
    return (text + "\n".join(lines) + "\n").replace("NAME_", f"{made.name}_")


def _call() -> str:
    """The call of a command's function with all arguments there may be."""
    lines = []
    for n in range(MOST_ARGUMENTS):
        lines.append(f"  %p{n} = getelementptr i64, ptr %given, i64 {n}")
        lines.append(f"  %v{n} = load i64, ptr %p{n}")
    values = ", ".join(f"i64 %v{n}" for n in range(MOST_ARGUMENTS))
    return "\n".join([*lines, f"  %r = call i32 %function({values})", ""])


def _list(name: str, commands: Sequence[Command], made: Commands) -> list[str]:
    """A list of commands: its words, and how many they are."""
    places = {f: made.functions_at + 8 * n for n, f in enumerate(made.functions)}
    rows: list[int] = []
    for c in commands:
        rows += [places[c.function], c.needs, c.failure, len(c.arguments)]
        rows += [n for argument in c.arguments for n in argument]
    return [
        numbers(f"{name}_words", "i64", rows),
        f"@{name} = internal constant %list {{ ptr @{name}_words, i64 {len(commands)} }}",
    ]


def _entry(number: int, entry: CFunction) -> list[str]:
    """The data of a function, and the C function."""
    count = len(entry.first)
    fields = f"ptr @commands_{number}, i64 {entry.arguments}, i64 {entry.status}, i64 {count}"
    first = f"[{count} x i64] [{', '.join(f'i64 {n}' for n in entry.first)}]"
    return [
        f"@entry_{number} = internal constant {{ ptr, i64, i64, i64, [{count} x i64] }} {{ {fields}, {first} }}",
        *c_function(entry.name, entry.arguments, f"entry_{number}"),
    ]
