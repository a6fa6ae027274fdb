"""The C header of a package: its functions with the shapes of their arrays, and how parameters are read and written."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence

from neoflow.package.contents import Array, Contents, Program
from neoflow.package.image import FOREIGN, UNREADABLE
from neoflow.package.manifest import FORMAT, PARAMETERS

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
RESERVED = ("open", "close", "parameter", "message", "load", "store", "constants", "head", "names")
"""What no function of a package may be called: names of the header's own."""
_INSTANCE = """\
/* An instance: parameters, memory and threads. One thread at a time may use it; several instances may run side by side.
   Every array begins at a multiple of 64 bytes (aligned_alloc), is dense and row-major. Functions return 0, or a number
   that NAME_message puts into words. */"""
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
        if (fseek(file, (long)({upper}_HEAD_BYTES + {name}_names[n].begin), SEEK_SET) != 0 ||
            fread({name}_parameter(model, n), {name}_names[n].bytes, 1, file) != 1)
            result = {unreadable};
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
        if (fseek(file, (long)({upper}_HEAD_BYTES + {name}_names[n].begin), SEEK_SET) != 0 ||
            fwrite({name}_parameter(model, n), {name}_names[n].bytes, 1, file) != 1)
            result = {unreadable};
    if (fclose(file) != 0)
        result = {unreadable};
    return result;
}}
"""


def make_header(name: str, contents: Contents, threads: int, target: str, version: str, head: bytes) -> str:
    """The text of the header. head: what a file of parameters begins with; threads: at most so many are used."""
    guard = f"{name.upper()}_NFLIB_H"
    parts = [
        f"/* {name}, by neoflow {version}: a package of format {FORMAT} for {target}. Made by a program. */",
        f"#ifndef {guard}\n#define {guard}\n",
        "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n",
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        _INSTANCE.replace("NAME", name),
        f"typedef struct {name} {name};\n",
        f"#define {name.upper()}_THREADS {threads} /* at most */",
        f"#define {name.upper()}_PARAMETERS {len(contents.parameters)}\n",
        f"/* A new instance, its parameters 0, of so many threads (0: {threads}); NULL where memory is missing. */",
        f"{name} *{name}_open(int32_t threads);",
        f"void {name}_close({name} *model);",
        f"const char *{name}_message(int32_t number);\n",
        "/* The memory of a parameter, which a program may read and write between two calls. */",
        f"void *{name}_parameter(const {name} *model, int32_t number);\n",
        *_numbers(name, contents.parameters),
        *(_declared(name, p, contents) for p in contents.programs),
    ]
    if contents.parameters:
        said = json.loads(head[8:])
        rows = [(_quoted(p.name), p.nbytes, said[p.name]["data_offsets"][0]) for p in contents.parameters]
        parts += [
            _TABLE.format(name=name, rows="".join(f'    {{"{n}", {size}u, {at}u}},\n' for n, size, at in rows)),
            _FILES.format(
                name=name,
                upper=name.upper(),
                head=len(head),
                parameters=PARAMETERS,
                bytes=sum(p.nbytes for p in contents.parameters),
                unreadable=UNREADABLE,
                foreign=FOREIGN,
            ),
        ]
    parts.append("#ifdef __cplusplus\n}\n#endif\n#endif\n")
    return "\n".join(parts)


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
