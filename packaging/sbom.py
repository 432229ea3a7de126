"""Completes a list of parts: sbom.py FROM SOURCE OUT

FROM is what cargo-cyclonedx wrote for the program, SOURCE the folder that it looked at. Adds what
Cargo does not know, takes the paths of this machine out, and checks the result.
"""

import base64
import json
import re
import subprocess
import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


def main(made: Path, source: Path, out: Path) -> None:
    text = made.read_text().replace(f"path+file://{source.resolve()}/", "legwork:")
    # Crates of ours are where they are published, and not in a folder.
    text = re.sub(r"\?download_url=file:[^\"#]*", "", text)
    bom = json.loads(text)
    program = bom["metadata"]["component"]["bom-ref"]
    added = [*page(source / "crates/cli/web"), sqlite(bom, source)]
    bom["components"] += added
    graph = {entry["ref"]: entry for entry in bom["dependencies"]}
    for part in added:
        graph[part["bom-ref"]] = {"ref": part["bom-ref"], "dependsOn": []}
        by = part.pop("used by", program)
        graph[by]["dependsOn"] = sorted({*graph[by].get("dependsOn", []), part["bom-ref"]})
    bom["components"].sort(key=lambda part: part["bom-ref"])
    bom["dependencies"] = [graph[ref] for ref in sorted(graph)]

    text = json.dumps(bom, indent=1, ensure_ascii=False) + "\n"
    for folder in {str(source), str(source.resolve()), str(Path.home())}:
        assert folder not in text, f"a path of this machine is in the list: {folder}"
    wrong = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
    if wrong is not None:
        sys.exit(f"sbom.py: not CycloneDX 1.5: {wrong}")
    out.write_text(text)


def page(web: Path) -> list[dict]:
    """The npm packages whose code is in the page of `legwork serve`."""
    locked = json.loads((web / "package-lock.json").read_text())["packages"]
    wanted = list(json.loads((web / "package.json").read_text())["dependencies"])
    found: dict[str, dict] = {}
    while wanted:
        name = wanted.pop()
        about = locked[f"node_modules/{name}"]
        wanted += [each for each in about.get("dependencies", {}) if each not in found]
        algorithm, digest = about["integrity"].split("-", 1)
        assert algorithm == "sha512", about
        purl = f"pkg:npm/{name.replace('@', '%40')}@{about['version']}"
        found[name] = {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": about["version"],
            "scope": "required",
            "hashes": [{"alg": "SHA-512", "content": base64.b64decode(digest).hex()}],
            "licenses": [{"expression": about["license"]}],
            "purl": purl,
        }
    return list(found.values())


def sqlite(bom: dict, source: Path) -> dict:
    """SQLite, as the crate that has its source says in its header."""
    crate = next(part for part in bom["components"] if part["name"] == "libsqlite3-sys")
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    packages = json.loads(subprocess.check_output(command, cwd=source))["packages"]
    manifest = next(
        each["manifest_path"]
        for each in packages
        if (each["name"], each["version"]) == (crate["name"], crate["version"])
    )
    header = (Path(manifest).parent / "sqlite3/sqlite3.h").read_text()
    version = re.search(r'^#define SQLITE_VERSION +"(.+)"$', header, re.MULTILINE)[1]
    purl = f"pkg:generic/sqlite@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": "sqlite",
        "version": version,
        "scope": "required",
        "licenses": [{"license": {"name": "Public Domain"}}],
        "purl": purl,
        "used by": crate["bom-ref"],
    }


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
