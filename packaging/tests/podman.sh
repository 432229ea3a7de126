#!/usr/bin/env bash
# Runs the image in containers, where podman is installed: podman.sh ARCHIVE VERSION
#
# With the rights that a container has by default, a command runs and is answered; what of the sandbox
# is missing then, its result says.
set -euo pipefail
if ! command -v podman >/dev/null; then
    echo "SKIPPED: no podman here"
    exit
fi
store=$(mktemp -d)
finish() {
    # podman leaves its store mounted upon itself, sometimes twice.
    while umount --lazy "$store/root/overlay" 2>/dev/null; do :; done
    rm -rf "$store"
}
trap finish EXIT
pod() { podman --root "$store/root" --runroot "$store/run" --tmpdir "$store/tmp" "$@"; }
pod load --quiet --input "$1"
image=localhost/legwork:$2

run() {
    pod run --rm --network none --cgroups disabled --ulimit nofile=1024:1024 \
        --ulimit nproc=1000:1000 "$@"
}
# Inside another container, or a small machine, podman may lack the rights to start one.
if ! said=$(run "$image" --version 2>&1) && [[ $said == *OCI* ]]; then
    echo "SKIPPED: podman starts no container here: $said"
    exit
fi
[ "$said" = "legwork $2" ]
echo "== default rights"
text=$(run "$image" call ExecCommand '{"cmd":"echo hi; id -u"}')
echo "$text"
[[ $text == *"Process exited with code 0"*hi*1000* ]]
