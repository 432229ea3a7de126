#!/usr/bin/env python3
"""Prints the end-to-end tests that run against the program for Windows: all of the list, those of CI (`--ci`), those with a part of a name."""

import pathlib
import sys
import tomllib

LIST = pathlib.Path(__file__).resolve().parent.parent / "crates/cli/tests/e2e/windows.toml"


def main() -> int:
    """The names, a line each; an error where there are none."""
    parts = [word for word in sys.argv[1:] if word != "--ci"]
    lists = ["ci"] if "--ci" in sys.argv else ["ci", "by_hand"]
    modules = tomllib.loads(LIST.read_text())["module"]
    names = [f"{module['name']}::{test}" for module in modules for name in lists for test in module.get(name, [])]
    wanted = [name for name in names if not parts or any(part in name for part in parts)]
    print("\n".join(wanted))
    return 0 if wanted else 1


sys.exit(main())
