#!/usr/bin/env bash
# Runs the image in containers, where podman is installed: podman.sh ARCHIVE VERSION
#
# With the rights that a container has by default, a command runs and is recorded; with those that
# docs/install.md names, it is sandboxed in full, too.
set -euo pipefail
if ! command -v podman >/dev/null; then
    echo "SKIPPED: no podman here"
    exit
fi
store=$(mktemp -d)
trap 'rm -rf "$store"' EXIT
pod() { podman --root "$store/root" --runroot "$store/run" --tmpdir "$store/tmp" "$@"; }
pod load --quiet --input "$1"
image=localhost/legwork:$2

run() { pod run --rm --network none --cgroups disabled "$@"; }
[ "$(run "$image" --version)" = "legwork $2" ]
echo "== default rights"
text=$(run "$image" call ExecCommand '{"cmd":"echo hi; id -u"}')
echo "$text"
[[ $text == *"Process exited with code 0"*hi*1000* ]]
echo "== with user namespaces"
text=$(run --security-opt seccomp=unconfined --security-opt unmask=ALL "$image" \
    call ExecCommand '{"cmd":"echo hi"}')
echo "$text"
[[ $text == *"Process exited with code 0"*hi* && $text != *"Protection missing"* ]]
