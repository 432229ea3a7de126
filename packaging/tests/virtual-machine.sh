#!/usr/bin/env bash
# Tests a static program for aarch64 in a virtual machine: PROGRAM
#
# Emulation of a single process (qemu-user) will not do: it has no seccomp filters, and its ptrace and
# namespaces are not a kernel's. So a whole machine is emulated, with Debian's kernel and busybox, from
# memory alone.

here=$(dirname "$0")
source "$here/../lib.sh"
program=$1

machine=$tools/machine
need_programs qemu-system-aarch64:qemu-system-arm cpio
if [ ! -e "$machine/complete" ]; then
    rm -rf "$machine"
    mkdir -p "$machine"
    extract_debian arm64 "$machine.tar" busybox-static,linux-image-cloud-arm64
    tar --extract --file "$machine.tar" --directory "$machine" --wildcards ./bin/busybox './boot/vmlinuz-*'
    rm "$machine.tar"
    touch "$machine/complete"
fi
image=$(mktemp -d)
trap 'rm -rf "$image"' EXIT
mkdir -p "$image"/{system,packages}
# Its own busybox cannot run here to say what it has.
unpack_debian "$tools/busybox" busybox-static
"$here/busybox-system.sh" "$image/system" "$tools/busybox/bin/busybox"
install -m 755 "$machine/bin/busybox" "$image/system/bin/busybox"
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
    -kernel "$(echo "$machine"/boot/vmlinuz-*)" -initrd "$image/initramfs" \
    -append "console=ttyAMA0 quiet rdinit=/init" </dev/null | tee "$image/log"
grep -q '^EVERYTHING HOLDS' "$image/log" || fail "static aarch64: failed"
note "static aarch64: everything holds"
