#!/usr/bin/env bash
# Builds all packages a second time, in another folder, and compares: reproduce.sh [ARCHITECTURE…]
#
# The first build is that of this clone, which has been made already where there are packages. The
# second is of a fresh clone of the committed tree, in a folder whose path has another length, with
# another path to cargo's home; it shares the build tools and the downloaded sources. Every byte must be
# equal; the checksums are printed. x86_64 and aarch64 by default. Exit code 1 says which file differs.
# Takes as long as a release build: for a quick try set CARGO_PROFILE_RELEASE_LTO=off and
# CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16.

source "$(dirname "$0")/lib.sh"
choose_architectures "$@"
[ -z "$(git -C "$root" status --porcelain)" ] || fail "compares commits, and not everything is committed"

place=$(mktemp -d "${TMPDIR:-/tmp}/legwork-reproduce.XXXXXX")
trap 'rm -rf "$place"' EXIT
export LEGWORK_TOOLS=$tools

# Builds the packages of a clone: CLONE FOLDER
packages() {
    local script
    for script in wheel npm linux mcpb oci sbom; do
        LEGWORK_DIST=$2 "$1/packaging/$script.sh" "${chosen[@]}"
    done
}

packages "$root" "$place/one"
clone=$place/another/with/a/longer/path
git clone --quiet --no-hardlinks "$root" "$clone"
ln -s "${CARGO_HOME:-$HOME/.cargo}" "$place/home"
CARGO_HOME=$place/home packages "$clone" "$place/two"

cd "$place/one"
sha256sum -- * >"$place/sums"
cd "$place/two"
sha256sum --check --quiet "$place/sums" || fail "two builds of one commit differ"
[ "$(ls)" = "$(ls "$place/one")" ] || fail "two builds of one commit have different files"
cat "$place/sums"
note "two builds in two folders are equal"
