#!/usr/bin/env bash
# Writes target/dist/SHA256SUMS, the digests of all packages of this version in target/dist.
# `sha256sum --check SHA256SUMS` compares them.

source "$(dirname "$0")/lib.sh"
[[ ${1:-} != -* ]] || { usage; exit 0; }

cd "$dist"
# Whatever else lies there is of another version, or no package.
find . -maxdepth 1 -type f \( -name "*$version*" -o -name legwork.rb \) -printf '%P\n' | sort |
    xargs sha256sum >SHA256SUMS
sha256sum --check --quiet SHA256SUMS
note "$dist/SHA256SUMS: $(wc -l <SHA256SUMS) files"
