#!/usr/bin/env bash
# Unpacks a bundle with its own tool, and drives the server in it: mcpb.sh BUNDLE
source "$(dirname "$0")/../lib.sh"
source "$root/packaging/npm-tools.sh"

npm_tools mcpb @anthropic-ai/mcpb@2.1.2
python_environment mcp mcp==2.3.0
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
npm_tool mcpb unpack "$1" "$unpacked/bundle" >/dev/null
"$environment/bin/python" "$root/packaging/tests/mcpb.py" "$unpacked/bundle" "$version"
