"""Unpacks an image of an OCI archive: oci.py ARCHIVE ARCHITECTURE FOLDER

Looks at what the specification demands: digests and sizes of all blobs, digests of the unpacked
layers, a platform for each image.
"""

import gzip
import hashlib
import io
import json
import sys
import tarfile


def main(archive: str, architecture: str, folder: str) -> None:
    blobs = {}
    with tarfile.open(archive) as opened:
        for entry in opened.getmembers():
            if entry.isfile():
                blobs[entry.name] = opened.extractfile(entry).read()

    def blob(about: dict) -> bytes:
        algorithm, digest = about["digest"].split(":")
        data = blobs[f"blobs/{algorithm}/{digest}"]
        assert hashlib.new(algorithm, data).hexdigest() == digest, about
        assert len(data) == about["size"], about
        return data

    assert json.loads(blobs["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads(blobs["index.json"])["manifests"]
    images = json.loads(blob(entry))["manifests"]
    platforms = [image["platform"]["architecture"] for image in images]
    (image,) = [it for it in images if it["platform"]["architecture"] == architecture]
    manifest = json.loads(blob(image))
    config = json.loads(blob(manifest["config"]))
    assert (config["architecture"], config["os"]) == (architecture, "linux"), config
    layers = [gzip.decompress(blob(layer)) for layer in manifest["layers"]]
    digests = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
    assert digests == config["rootfs"]["diff_ids"], digests
    for layer in layers:
        with tarfile.open(fileobj=io.BytesIO(layer)) as opened:
            opened.extractall(folder, numeric_owner=True)
    print(f"{len(blobs)} files, images for {', '.join(platforms)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
