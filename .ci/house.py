"""Prints what HOUSE counts of the four crates, each beside its budget: `just house`.

Code is what is neither blank, comment nor test. A struct's methods are those of all its own `impl` blocks; a room is a module directly below
the library's root.
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parent.parent
CRATES = ["gate", "warden", "engine", "cli"]
# Its methods are the rules of a grammar.
GRAMMARS = {("gate", "Reader")}
TOKEN = re.compile(
    r'(?P<comment>//[^\n]*|/\*.*?\*/)'
    r'|(?P<text>b?c?r(?P<hashes>#*)".*?"(?P=hashes)|[bc]?"(?:\\.|[^"\\])*")'
    r"|(?P<letter>b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^'\\\n])')",
    re.S,
)
RIDDLE = re.compile(r"(What|Whether|Where|How|Who|The same)\b")


def blanked(text: str, what: re.Pattern, kinds: set[str]) -> str:
    """A source without its comments or texts, line by line as long as it was."""
    return what.sub(lambda it: re.sub(r"[^\n]", " ", it[0]) if it.lastgroup in kinds else it[0], text)


def matching(text: str, start: int) -> int:
    """The place behind the brace that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place + 1
    return len(text)


def bare(text: str) -> str:
    """A source without comments, texts and tests."""

    def blank(it: re.Match) -> str:
        return re.sub(r"[^\n]", " ", it[0])

    text = TOKEN.sub(blank, text)
    while found := re.search(r"#\[cfg\((?:test|all\(test\b[^\]]*)\)\]\s*(?:pub(?:\([^)]*\))? )?mod \w+\s*\{", text):
        end = matching(text, found.end() - 1)
        text = text[: found.start()] + re.sub(r"[^\n]", " ", text[found.start() : end]) + text[end:]
    return text


def blocks(text: str, head: str):
    """The heads and bodies of blocks that begin so."""
    for found in re.finditer(head, text, re.M):
        start = text.find("{", found.end())
        if start >= 0 and ";" not in text[found.end() : start]:
            yield found, text[start : matching(text, start)]


def functions(body: str) -> int:
    """How many functions stand directly in a block."""
    depth, count = 0, 0
    for word in re.finditer(r"[{}]|\bfn\s+\w", body):
        depth += {"{": 1, "}": -1}.get(word[0], 0)
        count += word[0].startswith("fn") and depth == 1
    return count


def main() -> int:
    code, long_files, doc_lines, riddles = {}, [], 0, 0
    methods, traits = collections.Counter(), {}
    for crate in CRATES:
        source = ROOT / "crates" / crate / "src"
        for path in sorted(source.rglob("*.rs")):
            if path.name == "tests.rs" or path.stem.endswith("_tests"):
                continue
            whole = path.read_text()
            text = bare(whole)
            lines = sum(1 for line in text.splitlines() if line.strip())
            code[crate] = code.get(crate, 0) + lines
            if whole.count("\n") > 600:
                long_files.append(f"{path.relative_to(ROOT)} ({whole.count(chr(10))})")
            docs = re.findall(r"(?:^|\n)(?!\s*//[/!])[^\n]*\n\s*//[/!] (\S[^\n]*)", "\n" + whole)
            doc_lines += len(docs)
            riddles += sum(1 for line in docs if RIDDLE.match(line))
            for found, body in blocks(text, r"^\s*(?:unsafe )?impl(?:<[^{}]*?>)?\s+(?:\w+::)*(\w+)(?:<[^{}]*?>)?\s*(?=\{|where\b)"):
                methods[crate, found[1]] += functions(body)
            for found, body in blocks(text, r"^\s*(?:pub(?:\([^)]*\))? )?(?:unsafe )?trait (\w+)"):
                traits[crate, found[1]] = functions(body)
    engine = ROOT / "crates/engine/src"
    rooms = sorted(path.name for path in engine.iterdir() if path.is_dir())
    wide = [f"{crate}::{name} ({count})" for (crate, name), count in methods.most_common() if count > 40 and (crate, name) not in GRAMMARS]
    broad = [f"{crate}::{name} ({count})" for (crate, name), count in traits.items() if count > 12]
    percent = 100 * riddles / max(doc_lines, 1)
    rows = [
        ("code lines", sum(code.values()), 68_000, ", ".join(f"{crate} {lines}" for crate, lines in code.items())),
        ("code lines of the engine", code["engine"], 30_000, ""),
        ("rooms of the engine", len(rooms), 10, ", ".join(rooms)),
        ("structs with over 40 methods", len(wide), 0, ", ".join(wide)),
        ("traits with over 12 functions", len(broad), 0, ", ".join(broad)),
        ("files of over 600 lines", len(long_files), 0, ", ".join(long_files)),
        ("% of doc comments that begin with What, Whether, …", round(percent, 1), 5, f"{riddles} of {doc_lines}"),
    ]
    for name, value, budget, note in rows:
        print(f"{'ok  ' if value <= budget else 'OVER'} {name}: {value} (at most {budget}){': ' + note if note else ''}")
    return 0 if all(value <= budget for _, value, budget, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
