"""`python -m legwork_cli` is the program."""

import os
import sys

from ._errors import ProgramNotFound
from ._program import find_program

try:
    program = find_program()
except ProgramNotFound as error:
    sys.exit(f"legwork: {error.message}")
os.execv(program, [program, *sys.argv[1:]])
