"""The C header of a package: its functions with the shapes of their arrays, and how parameters are read and written."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence

from neoflow.package.contents import Array, Contents, Program
from neoflow.package.image import FOREIGN, UNREADABLE
from neoflow.package.manifest import FORMAT, PARAMETERS
from neoflow.target import Target

_TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "bool": "uint8_t",
}
"""The C type of an element."""
_NAMES = ("open", "close", "parameter", "message", "load", "store", "constants", "head", "names")
RESERVED = {"cpu": _NAMES, "gpu": (*_NAMES, "get", "set", "read", "write")}
"""What no function of a package may be called: names of the header's own."""
_ON_CPU = """\
/* An instance: parameters, memory and threads. One thread at a time may use it; several instances may run side by side.
   Every array begins at a multiple of 64 bytes (aligned_alloc), is dense and row-major. Functions return 0, or a number
   that NAME_message puts into words. */"""
_ON_GPU = """\
/* An instance: parameters and memory on a GPU. One thread at a time may use it, whose CUDA context becomes the primary
   one of that GPU; several instances may run side by side. Every array is on the host, dense and row-major, and is
   copied. Functions return 0, or a number that NAME_message puts into words; those of an instance that could not be
   opened say why: there is no driver, the GPU is of another architecture, its memory is too small. */"""
_MOVED = """\
/* Copy a parameter of an instance to an array on the host, and from one, between two calls. NAME_parameter is its
   address on the GPU. */
int32_t {name}_get(const {name} *model, int32_t number, void *array);
int32_t {name}_set({name} *model, int32_t number, const void *array);
void *{name}_parameter(const {name} *model, int32_t number);
"""
_PARTS = """\
/* Copy a parameter of an instance from a file, from where that is read next, and to one. */
static inline int32_t {name}_read({name} *model, int32_t number, FILE *file) {{
    void *array = malloc({name}_names[number].bytes);
    int32_t result = {unreadable};
    if (array != NULL && fread(array, {name}_names[number].bytes, 1, file) == 1)
        result = {name}_set(model, number, array);
    free(array);
    return result;
}}

static inline int32_t {name}_write(const {name} *model, int32_t number, FILE *file) {{
    void *array = malloc({name}_names[number].bytes);
    int32_t result = array == NULL ? {unreadable} : {name}_get(model, number, array);
    if (result == 0 && fwrite(array, {name}_names[number].bytes, 1, file) != 1)
        result = {unreadable};
    free(array);
    return result;
}}
"""
_READ = {
    "cpu": "fread({name}_parameter(model, n), {name}_names[n].bytes, 1, file) == 1 ? 0 : {unreadable}",
    "gpu": "{name}_read(model, n, file)",
}
_WRITE = {
    "cpu": "fwrite({name}_parameter(model, n), {name}_names[n].bytes, 1, file) == 1 ? 0 : {unreadable}",
    "gpu": "{name}_write(model, n, file)",
}
"""What moves parameter n between an instance and a file."""
_TABLE = """\
/* The parameters, in the order of their numbers: name, bytes, and where each begins in a file of parameters, counted
   from the end of that file's head. */
static const struct {{ const char *name; uint64_t bytes; uint64_t begin; }} {name}_names[] = {{
{rows}}};
"""
_FILES = """\
/* What every file of parameters of this model begins with: the length and the head of a safetensors file, as neoflow
   writes them. */
const char *{name}_head(void);
#define {upper}_HEAD_BYTES {head}u

/* Read the parameters of a file into an instance: {parameters} of the package, or one that
   nf.save_parameters has written. Nothing is changed where the file is not of this model. */
static inline int32_t {name}_load({name} *model, const char *path) {{
    char part[1024];
    FILE *file = fopen(path, "rb");
    int32_t result = {foreign};
    if (file == NULL)
        return {unreadable};
    if (fseek(file, 0, SEEK_END) == 0 && ftell(file) == (long)({upper}_HEAD_BYTES + {bytes}u) &&
        fseek(file, 0, SEEK_SET) == 0)
        result = 0;
    for (size_t at = 0, size; result == 0 && at < {upper}_HEAD_BYTES; at += size) {{
        size = {upper}_HEAD_BYTES - at < sizeof part ? {upper}_HEAD_BYTES - at : sizeof part;
        if (fread(part, size, 1, file) != 1 || memcmp(part, {name}_head() + at, size) != 0)
            result = {foreign};
    }}
    for (int32_t n = 0; result == 0 && n < {upper}_PARAMETERS; n++)
        if (fseek(file, (long)({upper}_HEAD_BYTES + {name}_names[n].begin), SEEK_SET) != 0)
            result = {unreadable};
        else
            result = {read};
    fclose(file);
    return result;
}}

/* Write the parameters of an instance to a file, which {name}_load and nf.load_parameters read. */
static inline int32_t {name}_store(const {name} *model, const char *path) {{
    FILE *file = fopen(path, "wb");
    int32_t result = 0;
    if (file == NULL)
        return {unreadable};
    if (fwrite({name}_head(), {upper}_HEAD_BYTES, 1, file) != 1)
        result = {unreadable};
    for (int32_t n = 0; result == 0 && n < {upper}_PARAMETERS; n++)
        if (fseek(file, (long)({upper}_HEAD_BYTES + {name}_names[n].begin), SEEK_SET) != 0)
            result = {unreadable};
        else
            result = {write};
    if (fclose(file) != 0)
        result = {unreadable};
    return result;
}}
"""


def make_header(name: str, contents: Contents, target: Target, version: str, head: bytes, threads: int = 1) -> str:
    """The text of the header. head: what a file of parameters begins with; threads: of a CPU at most so many are
    used."""
    guard = f"{name.upper()}_NFLIB_H"
    parts = [
        f"/* {name}, by neoflow {version}: a package of format {FORMAT} for {target.mcpu}. Made by a program. */",
        f"#ifndef {guard}\n#define {guard}\n",
        "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n",
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        *(_of_cpu(name, contents, threads) if target.device == "cpu" else _of_gpu(name, contents)),
        *_numbers(name, contents.parameters),
        *(_declared(name, p, contents) for p in contents.programs),
    ]
    if contents.parameters:
        said = json.loads(head[8:])
        rows = [(_quoted(p.name), p.nbytes, said[p.name]["data_offsets"][0]) for p in contents.parameters]
        words = {"name": name, "upper": name.upper(), "unreadable": UNREADABLE, "foreign": FOREIGN}
        sizes = {"head": len(head), "bytes": sum(p.nbytes for p in contents.parameters), "parameters": PARAMETERS}
        moves = {"read": _READ[target.device].format(**words), "write": _WRITE[target.device].format(**words)}
        parts.append(
            _TABLE.format(name=name, rows="".join(f'    {{"{n}", {size}u, {at}u}},\n' for n, size, at in rows))
        )
        if target.device == "gpu":
            parts.append(_PARTS.format(**words))
        parts.append(_FILES.format(**words, **sizes, **moves))
    parts.append("#ifdef __cplusplus\n}\n#endif\n#endif\n")
    return "\n".join(parts)


def _of_cpu(name: str, contents: Contents, threads: int) -> Iterator[str]:
    """An instance that has threads."""
    yield _ON_CPU.replace("NAME", name)
    yield f"typedef struct {name} {name};\n"
    yield f"#define {name.upper()}_THREADS {threads} /* at most */"
    yield f"#define {name.upper()}_PARAMETERS {len(contents.parameters)}\n"
    yield f"/* A new instance, its parameters 0, of so many threads (0: {threads}); NULL where memory is missing. */"
    yield f"{name} *{name}_open(int32_t threads);"
    yield from _ended(name)
    yield "/* The memory of a parameter, which a program may read and write between two calls. */"
    yield f"void *{name}_parameter(const {name} *model, int32_t number);\n"


def _of_gpu(name: str, contents: Contents) -> Iterator[str]:
    """An instance that has a GPU's memory."""
    yield _ON_GPU.replace("NAME", name)
    yield f"typedef struct {name} {name};\n"
    yield f"#define {name.upper()}_PARAMETERS {len(contents.parameters)}\n"
    yield "/* A new instance, its parameters 0, on the GPU of this number, from 0 on; NULL where memory is missing. */"
    yield f"{name} *{name}_open(int32_t ordinal);"
    yield from _ended(name)
    yield _MOVED.format(name=name).replace("NAME", name)


def _ended(name: str) -> Iterator[str]:
    yield f"void {name}_close({name} *model);"
    yield f"const char *{name}_message(int32_t number);\n"


def _numbers(name: str, parameters: Sequence[Array]) -> Iterator[str]:
    """The numbers of the parameters, by names that are words of C."""
    if not parameters:
        return
    yield "enum {"
    used: set[str] = set()
    for n, p in enumerate(parameters):
        word = f"{name}_{re.sub(r'[^A-Za-z0-9_]', '_', p.name)}".upper()
        word = word if word not in used else f"{word}_{n}"
        used.add(word)
        yield f"    {word} = {n}, /* {_comment(str(p))} */"
    yield "};\n"


def _declared(name: str, program: Program, contents: Contents) -> str:
    """A function: its arrays with their shapes, and what it changes."""
    used = {"model"}
    arrays = [(a, "const ") for a in program.inputs] + [(a, "") for a in program.outputs]
    lines, words = [], []
    for n, (a, const) in enumerate(arrays):
        word = re.sub(r"[^A-Za-z0-9_]", "_", a.name)
        word = word if word not in used and re.match("[A-Za-z]", word) and not _C.fullmatch(word) else f"{word}_{n}"
        word = word if re.match("[A-Za-z]", word) else f"a{word}"
        used.add(word)
        words.append(f"{const}{_TYPES[a.dtype]} *{word}")
        lines.append(f"   {word}: {a.dtype}{list(a.shape)}, {'in' if const else 'out'}")
    updated = ", ".join(contents.parameters[n].name for n in program.updated)
    changes = f"changes {updated}" if updated else "changes no parameter"
    told = "\n   ".join(textwrap.wrap(f"One run of {program.name}; {changes}.", 112))
    told = "\n".join([told, *lines])
    return f"/* {_comment(told)} */\nint32_t {name}_{program.name}({', '.join([f'{name} *model', *words])});\n"


_C = re.compile(
    "auto|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|inline|int|long|register|"
    "restrict|return|short|signed|sizeof|static|struct|switch|typedef|union|unsigned|void|volatile|while|class|new|"
    "delete|this|template|operator|public|private|protected|virtual|namespace|using|try|catch|throw|bool|true|false"
)
"""Words of C and C++ that name nothing."""


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("/*", "/ *")


def _quoted(text: str) -> str:
    """Inside of a C string."""
    return "".join(_escaped(byte) for byte in text.encode())


def _escaped(byte: int) -> str:
    return chr(byte) if 32 <= byte < 127 and byte not in b'"\\?' else f"\\{byte:03o}"
