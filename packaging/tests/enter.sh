# Enters a fresh copy of a system and runs a test there: SYSTEM FRESH SCRIPT TESTS FILE…
# Called by test.sh in new namespaces, as root.
set -euo pipefail
system=$1 fresh=$2 script=$3 tests=$4
shift 4

mount --make-rprivate /
mount -t tmpfs -o mode=755 fresh "$fresh"
mkdir "$fresh"/{upper,work,root}
mount -t overlay overlay -o "lowerdir=$system,upperdir=$fresh/upper,workdir=$fresh/work" "$fresh/root"
cd "$fresh/root"
mkdir -p packages dev proc sys tmp
[ $# = 0 ] || cp -r "$@" packages/
cp "$tests"/check.sh "$tests/$script" packages/
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmp tmp
mount -t sysfs -o ro sys sys
ip link set lo up

# What the test needs on loopback keeps the old system's files: in a namespace of its own, since the
# change of the root below is for all processes of this one.
if [ -n "$BESIDE" ]; then
    HOME=$fresh unshare --mount bash $BESIDE >"$fresh/beside.log" 2>&1 &
    until grep -q ^published: "$fresh/beside.log"; do
        kill -0 $! 2>/dev/null || { cat "$fresh/beside.log" >&2; exit 1; }
        sleep 0.2
    done
fi

# Not chroot: the kernel refuses user namespaces to whoever is in one.
mkdir -p .old
pivot_root . .old
umount -l /.old
rmdir /.old 2>/dev/null || true
home=/home/$AS
[ "$AS" != root ] || home=/root
cd "$home"
export HOME=$home PATH=/usr/local/bin:/usr/bin:/bin VERSION
unset BESIDE
exec su -p "$AS" -s /bin/sh -c "exec /bin/sh -eu /packages/$script"
