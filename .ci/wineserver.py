#!/usr/bin/env python3
"""Mends a wineserver: its grab_object() takes no object at all.

Without that the server dies (SIGSEGV) now and then when a process is killed while it starts, and every program of its prefix
with it. `wineserver.py FILE` changes the file in place; one that is mended already is left.
"""

import pathlib
import re
import sys

# edx = refcount; compare it with INT_MAX; a jump out of the function if it is above; else add one, return the object.
PLAIN = re.compile(
    rb"\x8b\x17\x81\xfa\xfe\xff\xff\x7f" rb"(?:\x77.|\x0f\x87....)" rb"\x83\xc2\x01\x48\x89\xf8\x89\x17\xc3", re.DOTALL
)
# rax = object; if it is not null, add one to its count; return.
MENDED = bytes.fromhex("4889f8 4885ff 7402 ff07 c3")


def main() -> None:
    """Changes the one place in the file."""
    path = pathlib.Path(sys.argv[1])
    code = path.read_bytes()
    if MENDED in code:
        return
    (found,) = PLAIN.findall(code)
    path.write_bytes(code.replace(found, MENDED + b"\xcc" * (len(found) - len(MENDED))))


main()
