#!/usr/bin/env bash
# Makes a system of busybox alone: FOLDER BUSYBOX
set -euo pipefail
rm -rf "$1"
mkdir -p "$1"/{bin,etc,home/you,usr/bin}
install -m 755 "$2" "$1/bin/busybox"
for name in $("$2" --list); do
    [ "$name" = busybox ] || ln -s busybox "$1/bin/$name"
done
echo 'you:x:1000:1000::/home/you:/bin/sh' >"$1/etc/passwd"
echo 'you:x:1000:' >"$1/etc/group"
chown 1000:1000 "$1/home/you"
