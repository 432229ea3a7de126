#!/usr/bin/env bash
# Builds the container image: oci.sh [ARCHITECTURE…], x86_64 and aarch64 by default.
#
# Writes target/dist/legwork-VERSION-oci.tar: an OCI archive with one image for each architecture, for
# `podman load`, `skopeo copy oci-archive:…` and the like. In it are the static program and, as shell
# and tools, Debian's static busybox. No daemon and no container program takes part: oci.py writes the
# archive. Equal sources and an equal busybox give equal bytes. Programs that are not in target/dist
# are built first (static.sh). Debian's packages are where busybox comes from.

source "$(dirname "$0")/lib.sh"
choose_architectures "$@"

# Debian's busybox for an architecture, unpacked below target/packaging; nothing of it is run.
busybox() {
    local folder=$tools/busybox-$1
    [ -e "$folder/complete" ] && return
    rm -rf "$folder"
    extract_debian "$1" "$folder.tar" busybox-static
    mkdir -p "$folder"
    tar --extract --file "$folder.tar" --directory "$folder" ./bin/busybox \
        ./usr/share/doc/busybox-static/copyright
    rm "$folder.tar"
    touch "$folder/complete"
}

need_static "${chosen[@]}"
arguments=()
for architecture in "${chosen[@]}"; do
    arch=${debian_names[$architecture]}
    busybox "$arch"
    arguments+=(--image "$arch" "$(static_program "$architecture")" "$tools/busybox-$arch")
done
# Its names are the same on every architecture, and those of this machine's can be asked for.
own=${debian_names[$(uname -m)]}
busybox "$own"
mkdir -p "$dist"
out=$dist/legwork-$version-oci.tar
"$tools/busybox-$own/bin/busybox" --list |
    python3 "$root/packaging/oci.py" --version "$version" --notices "$notices" --out "$out" "${arguments[@]}"
note "$out ($(stat -c %s "$out") bytes)"
