# Runs texts that come NUL-separated on standard input, many in one fork of bash: much faster than a bash of its
# own for each, which judges what this one finds. Texts of one fork share their variables and functions.
#
# $1 is an empty folder. Prints the number of a text and the name of what it would run.
set -u
mount -t tmpfs -o size=16m,noexec tmpfs "$1" || exit 3
mount -o remount,ro,bind / 2>/dev/null
cd "$1" || exit 3
texts=()
mapfile -d '' -t texts
PATH=/nonexistent
FUNCNEST=10
exec 9>&1 8> >(
    # Ends texts that take too long.
    while read -r process; do
        read -r -t 0.5 done || { kill -KILL "-$process"; read -r done; }
    done
)
ran() {
    printf '%s\n' "$number_of_text ${1//$'\n'/ }" >&9
    # A loop that never ends.
    ((++count < 100)) || builtin exit $((number_of_text - first))
    case $1 in *f) return 1 ;; esac
    return 0
}
command_not_found_handle() {
    ran "$1"
}
# A function needs no process; other names come to the hook.
for name in {out,sub}{0..9}{,f} sub{A..Z} exit; do
    eval "$name() { ran $name; }"
done
# Takes its options off as the gate does, so that a word that is none of them is seen.
env() {
    ran env
    while :; do
        case ${1-} in
            -u) shift 2 || return 1 ;;
            -*) return 1 ;;
            *=*) shift ;;
            *) break ;;
        esac
    done
    "$@"
}
run() {
    count=0
    eval "${texts[number_of_text]}"
}
ulimit -t 2 -f 64 -v 400000 -c 0
set +u -m
first=0 size=64 until=0
while [ "$first" -lt "${#texts[@]}" ]; do
    last=$((first + size < ${#texts[@]} ? first + size : ${#texts[@]}))
    (
        set --
        # What ends the shell ends it in the middle: the status tells how many texts were run before.
        trap 'builtin exit $((number_of_text - first))' EXIT
        enable -n exec kill source . cd pushd popd ulimit umask hash trap alias bind disown suspend fc history \
            logout set shopt enable
        for ((number_of_text = first; number_of_text < last; number_of_text++)); do
            run
            unset x v a fd i y
            unset -f out5 f1 f2 f3 f4 g1 g2 g3 g4
        done
    ) >/dev/null 2>&1 </dev/null 8>&- &
    printf '%s\n' "$!" >&8
    wait "$!"
    status=$?
    echo >&8
    if [ "$status" -gt 64 ] && [ "$size" -gt 1 ]; then
        # One of these hangs: each gets a fork of its own.
        size=1 until=$last
        continue
    fi
    [ "$size" -gt 1 ] && [ "$status" -lt $((last - first)) ] && last=$((first + status + 1))
    first=$last
    [ "$size" -gt 1 ] || [ "$first" -lt "$until" ] || size=64
done 2>/dev/null
builtin exit 0
