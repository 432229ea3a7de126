#!/usr/bin/env bash
# Lists what is in the program (SBOM): sbom.sh [ARCHITECTURE…], x86_64 and aarch64 by default.
#
# Writes target/dist/legwork-VERSION-ARCHITECTURE-linux-musl.cdx.json in CycloneDX 1.5: the crates, by
# cargo-cyclonedx; the npm packages of the page, from its lock file; and SQLite, whose source is inside
# a crate. The file is checked against CycloneDX's schema. It names no path of this machine, and equal
# sources give equal bytes. Nothing is compiled, but cargo-cyclonedx where it is not on PATH.

source "$(dirname "$0")/lib.sh"
choose_architectures "$@"

# Puts cargo-cyclonedx on PATH.
need_cyclonedx() {
    local wanted=0.5.9
    command -v cargo-cyclonedx >/dev/null && return
    export PATH=$tools/cargo-cyclonedx/bin:$PATH
    command -v cargo-cyclonedx >/dev/null && return
    cargo install --locked --quiet --debug --root "$tools/cargo-cyclonedx" "cargo-cyclonedx@$wanted"
}

list() {
    local out
    out=$(static_program "$1").cdx.json
    # It writes beside every manifest, so it gets a copy of them.
    (cd "$stage/source" && cargo cyclonedx --quiet --manifest-path crates/cli/Cargo.toml \
        --format json --spec-version 1.5 --target "$1-unknown-linux-musl" --no-build-deps \
        --override-filename sbom)
    "$environment/bin/python" "$root/packaging/sbom.py" "$stage/source/crates/cli/sbom.json" \
        "$stage/source" "$out"
    note "$out"
}

need_cyclonedx
python_environment sbom 'cyclonedx-python-lib[json-validation]==11.11.0'
mkdir -p "$dist"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir "$stage/source"
(cd "$root" && git ls-files -z Cargo.toml Cargo.lock crates bench |
    xargs --null cp --parents --target-directory "$stage/source")
for architecture in "${chosen[@]}"; do
    list "$architecture"
done
