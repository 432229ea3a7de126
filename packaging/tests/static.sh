# The bare program, in a system of busybox.
. /packages/check.sh
mkdir -p "$HOME/bin"
cp /packages/legwork-* "$HOME/bin/legwork"
check "$HOME/bin/legwork"
