"""Writes the licences of all that is in the program: notices.py MUSL_COPYRIGHT PAGE_MODULES OUT

Of each crate that is compiled in, for Linux on either architecture, and of each npm package in the
page of `legwork serve`, the files with its licence. Equal texts stand once, below the names of those
that are under them.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGETS = ("x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl")
LICENCE = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)([-._].*)?", re.IGNORECASE)


def main(musl: Path, modules: Path, out: Path) -> None:
    # What stands in the program without being a package of Cargo or npm.
    parts = {
        "musl": ("MIT", [musl]),
        "Rust's standard library": ("MIT OR Apache-2.0", []),
        "SQLite": ("public domain", []),
        **crates(),
        **page(modules),
    }
    texts: dict[str, list[str]] = defaultdict(list)
    for name, (_, files) in sorted(parts.items()):
        for text in sorted({plain(file) for file in files}):
            texts[text].append(name)
    lines = ["What is in legwork beside its own code, and the licences of that.", ""]
    lines += [f"{name}: {licence}" for name, (licence, _) in sorted(parts.items())]
    for text, names in sorted(texts.items(), key=lambda item: (item[1], item[0])):
        lines += ["", "=" * 80, *names, "=" * 80, "", text]
    out.write_text("\n".join(lines) + "\n")


def crates() -> dict[str, tuple[str, list[Path]]]:
    found = {}
    for target in TARGETS:
        command = ["cargo", "metadata", "--format-version", "1", "--locked"]
        told = subprocess.check_output([*command, "--filter-platform", target], cwd=ROOT)
        data = json.loads(told)
        packages = {package["id"]: package for package in data["packages"]}
        needs = {node["id"]: node["deps"] for node in data["resolve"]["nodes"]}
        wanted = [each for each in packages if packages[each]["name"] == "legwork-cli"]
        seen = set(wanted)
        while wanted:
            package = packages[current := wanted.pop()]
            # A macro runs in the compiler; a package of ours is under the licences of this project.
            is_macro = any("proc-macro" in target["kind"] for target in package["targets"])
            if is_macro:
                continue
            if package["source"] is not None:
                name = f"{package['name']} {package['version']}"
                folder = Path(package["manifest_path"]).parent
                found[name] = (package["license"] or "see its text", licences(folder))
            for needed in needs[current]:
                is_normal = any(kind["kind"] is None for kind in needed["dep_kinds"])
                if is_normal and needed["pkg"] not in seen:
                    seen.add(needed["pkg"])
                    wanted.append(needed["pkg"])
    return found


def page(modules: Path) -> dict[str, tuple[str, list[Path]]]:
    web = ROOT / "crates/cli/web"
    locked = json.loads((web / "package-lock.json").read_text())["packages"]
    wanted = list(json.loads((web / "package.json").read_text())["dependencies"])
    found = {}
    for name in wanted:
        about = locked[f"node_modules/{name}"]
        wanted += [each for each in about.get("dependencies", {}) if each not in wanted]
        texts = licences(modules / name)
        assert texts, f"{name} has no licence"
        found[f"{name} {about['version']} (npm)"] = (about["license"], texts)
    return found


def licences(folder: Path) -> list[Path]:
    files = [each for each in folder.iterdir() if LICENCE.fullmatch(each.name) and each.is_file()]
    return sorted(files)


def plain(file: Path) -> str:
    """A text without what differs only in its form."""
    text = file.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
