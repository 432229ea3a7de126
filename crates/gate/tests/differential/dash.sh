# Gives texts that come NUL-separated on standard input to dash, each in a fork of one dash.
#
# $1 is an empty folder. Prints the number of a text and the name of what it would run, as quick.sh does.
set -u
command -v dash >/dev/null || exit 3
mount -t tmpfs -o size=16m,noexec tmpfs "$1" || exit 3
mount -o remount,ro,bind / 2>/dev/null
cd "$1" || exit 3
texts=()
mapfile -d '' -t texts
# A function needs no process, and PATH leads nowhere: other names are not seen.
functions=$(
    for name in {out,sub}{0..9}{,f} sub{A..Z}; do
        case $name in *f) status=1 ;; *) status=0 ;; esac
        printf '%s() { ran %s; return %s; }\n' "$name" "$name" "$status"
    done
)
ulimit -t 1 -f 64 -v 400000 -c 0
dash=$(command -v dash)
PATH=/nonexistent
exec 9>&1
"$dash" -c "$functions"'
    ran() {
        printf "%s\n" "$number $1" >&9
        count=$((count + 1))
        # A loop that never ends.
        [ "$count" -lt 40 ] || exit
    }
    env() {
        ran env
        while :; do
            case ${1-} in
                -u) shift && shift || return 1 ;;
                -*) return 1 ;;
                *=*) shift ;;
                *) break ;;
            esac
        done
        "$@"
    }
    number=0 count=0
    for text do
        ( set --; eval "$text" ) >/dev/null 2>&1 </dev/null
        number=$((number + 1))
    done
' dash "${texts[@]}" 2>/dev/null
builtin exit 0
