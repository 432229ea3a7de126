"""Writes a folder as a zip: zip.py FOLDER OUT

Entries are sorted, have the modes of the files and the time of SOURCE_DATE_EPOCH, so that equal input
gives equal bytes.
"""

import os
import sys
import time
import zipfile
from pathlib import Path

#: A zip knows no time before this one.
FIRST_TIME = 315532800


def main(folder: Path, out: Path) -> None:
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", FIRST_TIME))
    stamp = time.gmtime(max(epoch, FIRST_TIME))[:6]
    with zipfile.ZipFile(out, "w") as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), stamp)
            entry.create_system = 3  # Unix, whose modes these are
            entry.external_attr = (0o100000 | (path.stat().st_mode & 0o777)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes(), compresslevel=9)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
