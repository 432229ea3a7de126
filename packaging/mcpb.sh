#!/usr/bin/env bash
# Builds the MCPB bundles: mcpb.sh [ARCHITECTURE…], x86_64 and aarch64 by default.
#
# Writes target/dist/legwork-VERSION-ARCHITECTURE-linux.mcpb: a zip of a manifest, the static program
# and the licences, which MCP clients such as Claude Desktop install with a click. A manifest can tell
# systems apart, but not processors, so there is one bundle for each. The manifest is checked with
# @anthropic-ai/mcpb from npm; the zip is written by zip.py, since that tool puts the present time
# into it. Programs that are not in target/dist are built first (static.sh).

source "$(dirname "$0")/lib.sh"
source "$root/packaging/npm-tools.sh"
choose_architectures "$@"

bundle() {
    local folder=$stage/$1 out=$dist/legwork-$version-$1-linux.mcpb
    mkdir -p "$folder/server"
    install -m 755 "$(static_program "$1")" "$folder/server/legwork"
    install -m 644 "$root"/LICENSE-{MIT,APACHE} "$folder/"
    install -m 644 "$notices" "$folder/THIRD-PARTY.txt"
    sed "s/\"version\": \"0.0.0\"/\"version\": \"$version\"/" \
        "$root/packaging/mcpb/manifest.json" >"$folder/manifest.json"
    npm_tool mcpb validate "$folder/manifest.json" >&2
    python3 "$root/packaging/zip.py" "$folder" "$out"
    note "$out ($(stat -c %s "$out") bytes)"
}

need_static "${chosen[@]}"
npm_tools mcpb @anthropic-ai/mcpb@2.1.2
mkdir -p "$dist"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
for architecture in "${chosen[@]}"; do
    bundle "$architecture"
done
