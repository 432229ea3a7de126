"""Writes an OCI archive: the program and a busybox, one image for each architecture.

oci.py --version VERSION --out FILE --image ARCHITECTURE PROGRAM BUSYBOX … with the names of busybox
on stdin. By hand, because an image is two tar files and three JSON files, and no builder that runs
without a daemon writes the same bytes twice. Times are that of SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
CREATED = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(EPOCH))
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"

#: Commands run as this user, whose id is what a person's mostly is.
USER = 1000

PASSWD = f"root:x:0:0:root:/root:/bin/sh\nlegwork:x:{USER}:{USER}::/home/legwork:/bin/sh\n"
GROUP = f"root:x:0:\nlegwork:x:{USER}:\n"


class Tree:
    """Files of a layer, each with its mode and its owner."""

    def __init__(self) -> None:
        self.entries: dict[str, tuple[tarfile.TarInfo, bytes]] = {}

    def folder(self, path: str, mode: int = 0o755, owner: int = 0) -> None:
        self._add(path, tarfile.DIRTYPE, mode, owner)

    def file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        self._parents(path)
        self._add(path, tarfile.REGTYPE, mode, 0, data)

    def link(self, path: str, to: str) -> None:
        self._parents(path)
        self._add(path, tarfile.SYMTYPE, 0o777, 0, to=to)

    def _parents(self, path: str) -> None:
        for parent in reversed(Path(path).parents):
            if str(parent) != "." and str(parent) not in self.entries:
                self.folder(str(parent))

    def _add(
        self, path: str, kind: bytes, mode: int, owner: int, data: bytes = b"", to: str = ""
    ) -> None:
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.linkname = kind, mode, to
        entry.uid = entry.gid = owner
        entry.size, entry.mtime = len(data), EPOCH
        self.entries[path] = (entry, data)

    def tar(self) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for _, (entry, data) in sorted(self.entries.items()):
                archive.addfile(entry, io.BytesIO(data))
        return out.getvalue()


class Layout:
    """The archive: blobs by their digest."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.tree.file("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')

    def blob(self, media: str, data: bytes) -> dict:
        digest = hashlib.sha256(data).hexdigest()
        self.tree.file(f"blobs/sha256/{digest}", data)
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}

    def json(self, media: str, value: dict) -> dict:
        return self.blob(media, encoded(value))


def encoded(value: dict) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def tools_layer(busybox: Path, names: list[str]) -> Tree:
    """A small system: shell, tools, a user, folders."""
    tree = Tree()
    tree.file("bin/busybox", (busybox / "bin/busybox").read_bytes(), 0o755)
    for name in names:
        if name != "busybox":
            tree.link(f"bin/{name}", "busybox")
    licence = "usr/share/doc/busybox-static/copyright"
    tree.file(licence, (busybox / licence).read_bytes())
    tree.file("etc/passwd", PASSWD.encode())
    tree.file("etc/group", GROUP.encode())
    for path in ("dev", "proc", "sys", "home", "root"):
        tree.folder(path)
    tree.folder("home/legwork", owner=USER)
    tree.folder("work", owner=USER)
    tree.folder("tmp", 0o1777)
    return tree


def program_layer(program: Path) -> Tree:
    tree = Tree()
    tree.file("usr/bin/legwork", program.read_bytes(), 0o755)
    for licence in ("LICENSE-MIT", "LICENSE-APACHE"):
        tree.file(f"usr/share/doc/legwork/{licence}", (ROOT / licence).read_bytes())
    return tree


def image(layout: Layout, version: str, arch: str, program: Path, tools: Tree) -> dict:
    """Adds an image, and returns its entry in the index."""
    tars = [tools.tar(), program_layer(program).tar()]
    about = annotations(version)
    config = {
        "architecture": arch,
        "os": "linux",
        "created": CREATED,
        "config": {
            "User": f"{USER}:{USER}",
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/legwork"],
            "Entrypoint": ["/usr/bin/legwork"],
            "Cmd": ["mcp", "--workspace", "/work"],
            "WorkingDir": "/work",
            "Labels": about,
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": [f"sha256:{hashlib.sha256(tar).hexdigest()}" for tar in tars],
        },
        "history": [
            {"created": CREATED, "created_by": "busybox"},
            {"created": CREATED, "created_by": "legwork"},
        ],
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": layout.json(CONFIG, config),
        "layers": [layout.blob(LAYER, gzip.compress(tar, 9, mtime=0)) for tar in tars],
        "annotations": about,
    }
    entry = layout.json(MANIFEST, manifest)
    return {**entry, "platform": {"architecture": arch, "os": "linux"}}


def annotations(version: str) -> dict[str, str]:
    return {
        "org.opencontainers.image.title": "legwork",
        "org.opencontainers.image.description": "Runs commands for AI agents",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.created": CREATED,
        "org.opencontainers.image.source": "https://github.com/legwork/legwork",
        "org.opencontainers.image.licenses": "(MIT OR Apache-2.0) AND GPL-2.0-only",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--image", required=True, action="append", nargs=3)
    given = parser.parse_args()
    names = sorted(sys.stdin.read().split())

    layout = Layout()
    images = [
        image(layout, given.version, arch, Path(program), tools_layer(Path(busybox), names))
        for arch, program, busybox in given.image
    ]
    about = annotations(given.version)
    both = {"schemaVersion": 2, "mediaType": INDEX, "manifests": images, "annotations": about}
    entry = layout.json(INDEX, both)
    name = {"org.opencontainers.image.ref.name": f"legwork:{given.version}"}
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [{**entry, "annotations": name}],
    }
    layout.tree.file("index.json", encoded(index))
    given.out.write_bytes(layout.tree.tar())


if __name__ == "__main__":
    main()
