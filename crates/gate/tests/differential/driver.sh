# Runs texts that come NUL-separated on standard input, each in its own bash that can reach nothing.
#
# Started inside new user, mount, network and process namespaces. What a text would run is recorded by the
# hook for commands that were not found: PATH leads nowhere, so that is every command but builtins.
# $1 is an empty folder, $2 a file with the set-up of every shell.
set -u
mount -t tmpfs -o size=4m,noexec tmpfs "$1" || exit 3
mount -o remount,ro,bind / 2>/dev/null
number=0
while IFS= read -r -d '' text; do
    # A folder and a record for each text: what an earlier one left running must not be taken for its own.
    number=$((number + 1))
    mkdir "$1/$number" && cd "$1/$number" || exit 3
    (
        ulimit -t 2 -f 64 -v 400000 -c 0
        exec 9>"../$number.record" >/dev/null 2>&1 </dev/null
        # A process namespace for each text: with its first process all that it started is gone.
        exec /usr/bin/timeout -s KILL 0.3 /usr/bin/unshare --pid --fork --kill-child=KILL \
            /usr/bin/env -i PATH=/nonexistent BASH_ENV="$2" /bin/bash -c -- "$text"
    )
    printf '\0'
    cat "../$number.record"
done
exit 0
