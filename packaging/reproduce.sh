#!/usr/bin/env bash
# Builds static programs, wheels and npm packages twice, and compares: reproduce.sh [ARCHITECTURE…]
#
# Two clones of the committed tree, in two folders whose paths differ in length, share nothing but
# the build tools. Every byte must be equal; the checksums are printed. x86_64 and aarch64 by default.
# Exit code 1 says which file differs. Takes as long as four release builds: for a quick try set
# CARGO_PROFILE_RELEASE_LTO=off and CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16.

source "$(dirname "$0")/lib.sh"
[[ ${1:-} != -* ]] || { usage; exit 0; }
[ $# -gt 0 ] || set -- "${architectures[@]}"

place=$(mktemp -d "${TMPDIR:-/tmp}/legwork-reproduce.XXXXXX")
trap 'rm -rf "$place"' EXIT
export LEGWORK_TOOLS=$tools
for clone in "$place/one" "$place/another/with/a/longer/path"; do
    git clone --quiet --no-hardlinks "$root" "$clone"
    for script in static wheel npm; do
        LEGWORK_DIST=$clone/dist "$clone/packaging/$script.sh" "$@"
    done
    # The second build needs the space.
    rm -rf "$clone/target"
done

cd "$place/one/dist"
sha256sum -- * >"$place/sums"
cd "$place/another/with/a/longer/path/dist"
sha256sum --check --quiet "$place/sums" || fail "two builds of one commit differ"
cat "$place/sums"
note "two builds in two folders are equal"
