# The system of the image, as the user that it names.
. /packages/check.sh
[ "$(id -u)" = 1000 ] || failed "the user is $(id)"
[ -w /work ] || failed "the user cannot write /work"
check legwork
