#!/usr/bin/env bash
# Tests a static program for aarch64 in a virtual machine: PROGRAM
#
# Emulation of a single process (qemu-user) will not do: it has no seccomp filters, and its ptrace and
# namespaces are not a kernel's. So a whole machine is emulated, with Debian's kernel and busybox, from
# memory alone.

here=$(dirname "$0")
source "$here/../lib.sh"
program=$1

machine=$tools/machine mirror=http://deb.debian.org/debian

# A field of a package in Debian's list: PACKAGE FIELD
field() {
    awk -v name="$1" -v field="$2:" '
        $1 == "Package:" { found = $2 == name }
        found && $1 == field && !seen { print $2; seen = 1 }' "$machine/list"
}

# Unpacks a package of Debian for the other architecture: PACKAGE FOLDER
foreign_package() {
    local path
    path=$(field "$1" Filename)
    [ -n "$path" ] || fail "Debian has no package $1"
    curl --silent --show-error --fail --output "$machine/package.deb" "$mirror/$path"
    dpkg --extract "$machine/package.deb" "$2"
}

need_programs qemu-system-aarch64:qemu-system-arm curl xz:xz-utils cpio
if [ ! -e "$machine/complete" ]; then
    rm -rf "$machine"
    mkdir -p "$machine"
    curl --silent --show-error --fail "$mirror/dists/bookworm/main/binary-arm64/Packages.xz" |
        xz --decompress >"$machine/list"
    foreign_package busybox-static "$machine/busybox"
    # The package of this name has no files, and depends on the newest kernel.
    foreign_package "$(field linux-image-cloud-arm64 Depends)" "$machine/kernel"
    rm "$machine"/{list,package.deb}
    touch "$machine/complete"
fi
image=$(mktemp -d)
trap 'rm -rf "$image"' EXIT
mkdir -p "$image"/{system,packages}
# Its own busybox cannot run here to say what it has.
unpack_debian "$tools/busybox" busybox-static
"$here/busybox-system.sh" "$image/system" "$tools/busybox/bin/busybox"
install -m 755 "$machine/busybox/bin/busybox" "$image/system/bin/busybox"
mkdir "$image/system/packages"
cp "$program" "$here/check.sh" "$here/static.sh" "$image/system/packages"
# The root of a system in memory cannot be changed, which a sandbox does: so a second one.
cat >"$image/system/init" <<'INIT'
#!/bin/sh
mkdir -p /new /proc /dev
mount -t tmpfs -o mode=755 new /new
cp -a /bin /etc /home /packages /usr /new/
mkdir -p /new/proc /new/sys /new/dev /new/tmp /new/sbin
cat >/new/sbin/init <<'SECOND'
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t tmpfs -o mode=1777 tmp /tmp
uname -a
cd /home/you
export HOME=/home/you VERSION=$(cat /etc/legwork-version)
su -p you -s /bin/sh -c "exec /bin/sh -eu /packages/static.sh" && echo EVERYTHING HOLDS
poweroff -f
SECOND
chmod 755 /new/sbin/init
exec switch_root /new /sbin/init
INIT
chmod 755 "$image/system/init"
echo "$version" >"$image/system/etc/legwork-version"
(cd "$image/system" && find . | cpio --quiet --create --format=newc | gzip -1) >"$image/initramfs"

timeout 600 qemu-system-aarch64 -machine virt -cpu cortex-a72 -m 1024 -smp 2 -nic none -nographic -no-reboot \
    -kernel "$(echo "$machine"/kernel/boot/vmlinuz-*)" -initrd "$image/initramfs" \
    -append "console=ttyAMA0 quiet rdinit=/init" </dev/null | tee "$image/log"
grep -q '^EVERYTHING HOLDS' "$image/log" || fail "static aarch64: failed"
note "static aarch64: everything holds"
