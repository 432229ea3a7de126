"""Writes one wheel: the static program as a script, and the library `legwork_cli`.

By hand, because no build backend takes a program that is built already; a wheel is a zip with three
more files. Entries are sorted and have the time of SOURCE_DATE_EPOCH, so that equal input gives equal
bytes.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import time
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "clients/python/src"
PROJECT = ROOT / "clients/python/pyproject.toml"
LICENCES = ("LICENSE-APACHE", "LICENSE-MIT")

#: The oldest systems that a static program is offered to: pip takes a wheel if one of them fits.
SYSTEMS = ("manylinux_2_17", "manylinux2014", "musllinux_1_1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--architecture", required=True)
    parser.add_argument("--program", required=True, type=Path)
    parser.add_argument("--out", required=True, type=Path)
    given = parser.parse_args()

    project = tomllib.loads(PROJECT.read_text())["project"]
    name = project["name"].replace("-", "_")
    stem = f"{name}-{given.version}"
    systems = [f"{system}_{given.architecture}" for system in SYSTEMS]
    about = f"{stem}.dist-info"

    files: dict[str, tuple[bytes, int]] = {
        f"{stem}.data/scripts/legwork": (given.program.read_bytes(), 0o755),
        f"{about}/METADATA": (metadata(project, given.version).encode(), 0o644),
        f"{about}/WHEEL": (wheel(systems).encode(), 0o644),
    }
    for path in sorted(SOURCE.rglob("*")):
        if path.is_file() and path.suffix in (".py", ".typed"):
            files[path.relative_to(SOURCE).as_posix()] = (path.read_bytes(), 0o644)
    for licence in LICENCES:
        files[f"{about}/licenses/{licence}"] = ((ROOT / licence).read_bytes(), 0o644)
    record = f"{about}/RECORD"
    lines = [f"{path},{digest(data)},{len(data)}" for path, (data, _) in sorted(files.items())]
    files[record] = ("\n".join([*lines, f"{record},,", ""]).encode(), 0o644)

    given.out.mkdir(parents=True, exist_ok=True)
    target = given.out / f"{stem}-py3-none-{'.'.join(systems)}.whl"
    write(target, files, last=f"{about}/")
    print(target)


def metadata(project: dict, version: str) -> str:
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {project['name']}",
        f"Version: {version}",
        f"Summary: {project['description']}",
        f"License-Expression: {project['license']}",
        *(f"License-File: {licence}" for licence in LICENCES),
        f"Requires-Python: {project['requires-python']}",
        f"Keywords: {','.join(project['keywords'])}",
        *(f"Classifier: {classifier}" for classifier in project["classifiers"]),
        *(f"Project-URL: {label}, {url}" for label, url in project["urls"].items()),
        "Description-Content-Type: text/markdown",
        "",
    ]
    readme = (PROJECT.parent / project["readme"]).read_text()
    return "\n".join([*lines, readme])


def wheel(systems: list[str]) -> str:
    tags = [f"Tag: py3-none-{system}" for system in systems]
    return "\n".join(["Wheel-Version: 1.0", "Generator: legwork", "Root-Is-Purelib: false", *tags, ""])


def digest(data: bytes) -> str:
    encoded = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={encoded.rstrip(b'=').decode()}"


def write(target: Path, files: dict[str, tuple[bytes, int]], last: str) -> None:
    """Writes the zip, with what describes it at its end, where installers look first."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
    stamp = time.gmtime(max(epoch, 315532800))[:6]
    # A zip counts in two seconds, and rounds.
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(files, key=lambda path: (path.startswith(last), path)):
            data, mode = files[path]
            entry = zipfile.ZipInfo(path, stamp)
            entry.create_system = 3  # Unix, whose modes these are
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data, compresslevel=9)


if __name__ == "__main__":
    main()
