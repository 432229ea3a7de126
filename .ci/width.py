#!/usr/bin/env python3
"""Names comments of Rust files that are wider than 100 columns; `--reflow` folds them."""

import pathlib
import re
import sys
import textwrap

WIDTH = 100
COMMENT = re.compile(r"^(\s*)(//[/!]?)( .*|)$")


def sources():
    root = pathlib.Path(__file__).resolve().parent.parent
    for folder in ("crates", "bench"):
        yield from sorted((root / folder).rglob("*.rs"))


def is_wide(line):
    # A word that cannot be folded, such as an address, may be as long as it is.
    found = COMMENT.match(line)
    return bool(found) and len(line) > WIDTH and " " in found[3].strip()


def plain(text):
    """Prose: neither a list, a table, a heading, indented code nor the fence of a code block."""
    return text.strip() and not re.match(r"^ (\s|[-*|#>`]|\d+\.)", text) and "```" not in text


def reflowed(lines):
    done, at, fenced = [], 0, False
    while at < len(lines):
        found = COMMENT.match(lines[at])
        if found and "```" in found[3]:
            fenced = not fenced
        if not found or fenced or not plain(found[3]):
            if found and not fenced and is_wide(lines[at]):
                done += folded(found[1], found[2], [found[3].strip()], "  " if re.match(r"^ [-*] ", found[3]) else "")
            else:
                done.append(lines[at])
            at += 1
            continue
        indent, mark, end = found[1], found[2], at
        while end < len(lines) and (next_one := COMMENT.match(lines[end])):
            same = (next_one[1], next_one[2]) == (indent, mark)
            if not same or not plain(next_one[3]):
                break
            end += 1
        paragraph = lines[at:end]
        if any(map(is_wide, paragraph)):
            texts = [COMMENT.match(line)[3].strip() for line in paragraph]
            done += folded(indent, mark, texts, "")
        else:
            done += paragraph
        at = end
    return done


def folded(indent, mark, texts, hanging):
    prefix = f"{indent}{mark} "
    return textwrap.wrap(" ".join(texts), WIDTH, initial_indent=prefix, subsequent_indent=prefix + hanging,
                         break_long_words=False, break_on_hyphens=False)


def main():
    wide = []
    for path in sources():
        lines = path.read_text().split("\n")
        if "--reflow" in sys.argv[1:] and any(map(is_wide, lines)):
            lines = reflowed(lines)
            path.write_text("\n".join(lines))
        wide += [f"{path}:{number}" for number, line in enumerate(lines, 1) if is_wide(line)]
    if wide:
        sys.exit("comments over 100 columns (.ci/width.py --reflow folds them):\n" + "\n".join(wide))


main()
