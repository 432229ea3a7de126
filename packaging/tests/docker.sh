#!/usr/bin/env bash
# Runs the image in containers, where docker and skopeo are installed: docker.sh ARCHIVE VERSION
#
# It starts a daemon of its own, without a network, and ends it. With the rights that a container has
# by default, a command runs and its result says which parts of the sandbox are missing; where the
# container may make namespaces, nothing is missing.
set -euo pipefail
for name in dockerd docker skopeo; do
    if ! command -v "$name" >/dev/null; then
        echo "SKIPPED: no $name here (Debian: docker.io, skopeo)"
        exit
    fi
done
folder=$(mktemp -d)
socket=unix://$folder/socket
dockerd --bridge=none --iptables=false --ip6tables=false --host "$socket" --pidfile "$folder/pid" \
    --data-root "$folder/data" --exec-root "$folder/run" >"$folder/log" 2>&1 &
daemon=$!
finish() {
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
    rm -rf "$folder"
}
trap finish EXIT
docker() { command docker --host "$socket" "$@"; }
for ((second = 0; second < 60; second++)); do
    docker version >/dev/null 2>&1 && break
    kill -0 "$daemon" 2>/dev/null || break
    sleep 1
done
if ! docker version >/dev/null 2>&1; then
    echo "SKIPPED: dockerd does not run here: $(tail -n 1 "$folder/log")"
    exit
fi
image=legwork:$2
skopeo --insecure-policy copy --quiet --dest-daemon-host "$socket" "oci-archive:$1" "docker-daemon:$image"

run() { docker run --rm --network none "$@"; }
holds() { [[ $1 == *"$2"* ]] || { echo "no \"$2\" in: $1"; exit 1; }; }
[ "$(run "$image" --version)" = "legwork $2" ]

call=(call ExecCommand '{"cmd":"echo hi; id -u"}')
echo "== default rights"
text=$(run "$image" "${call[@]}")
echo "$text"
holds "$text" "Process exited with code 0"
holds "$text" "hi
1000"
holds "$text" "Protection missing:
user_namespace"

echo "== with the right to make namespaces"
text=$(run --security-opt seccomp=unconfined --security-opt systempaths=unconfined \
    "$image" "${call[@]}")
echo "$text"
holds "$text" "Process exited with code 0"
[[ $text != *"Protection missing"* ]]
