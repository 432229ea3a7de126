# Runs texts that come NUL-separated on standard input, each in its own shell, with stubs for programs.
#
# Started inside new user, mount, network and process namespaces. $1 is an empty folder, $2 the folder of the stubs,
# $3 the shell.
set -u
mount -t tmpfs -o size=4m,noexec tmpfs "$1" || exit 3
number=0
while IFS= read -r -d '' text; do
    number=$((number + 1))
    mkdir "$1/$number" "$1/$number/home" && cd "$1/$number" || exit 3
    : > a.txt; : > ./-x; : > 'b c'
    (
        ulimit -t 2 -f 64 -v 400000 -c 0
        exec 9>"../$number.record" >/dev/null 2>&1 </dev/null
        exec /usr/bin/timeout -s KILL 2 /usr/bin/unshare --pid --fork --kill-child=KILL \
            /usr/bin/env -i PATH="$2" HOME=/home/user seen='a b' "$3" -c -- "$text"
    )
    printf '\0'
    cat "../$number.record"
done
exit 0
