#!/usr/bin/env bash
# Writes target/dist/legwork-VERSION-third-party.txt: the licences of all that is in the program beside
# its own code. Every package has it as THIRD-PARTY.txt.
#
# The texts are those of the crates, as cargo has unpacked them; of the page's packages, from npm; and
# that of musl, from zig, which links it. Nothing is compiled. Needs npm.

source "$(dirname "$0")/lib.sh"
[[ ${1:-} != -* ]] || { usage; exit 0; }

command -v npm >/dev/null || fail "no npm here"
zig_environment
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp "$root"/crates/cli/web/{package.json,package-lock.json,.npmrc} "$stage"
(cd "$stage" && npm ci --silent --no-audit --no-fund --ignore-scripts)
mkdir -p "$dist"
musl=$("$environment/bin/python" -c 'import pathlib, ziglang
print(pathlib.Path(ziglang.__file__).parent / "lib/libc/musl/COPYRIGHT")')
python3 "$root/packaging/notices.py" "$musl" "$stage/node_modules" "$stage/notices"
install -m 644 "$stage/notices" "$notices"
note "$notices"
