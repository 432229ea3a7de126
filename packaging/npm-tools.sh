# Programs from npm; sourced after lib.sh.

# Installs packages, at these versions, into a folder of their own: NAME PACKAGE…
npm_tools() {
    npm_folder=$tools/$1
    shift
    [ "$(cat "$npm_folder/complete" 2>/dev/null)" = "$*" ] && return
    command -v npm >/dev/null || fail "no npm here to get $* with"
    rm -rf "$npm_folder"
    mkdir -p "$npm_folder"
    echo '{ "private": true }' >"$npm_folder/package.json"
    npm install --prefix "$npm_folder" --silent --no-audit --no-fund --ignore-scripts "$@" >&2
    echo "$*" >"$npm_folder/complete"
}

# Runs one of them: PROGRAM ARGUMENT…
npm_tool() { "$npm_folder/node_modules/.bin/$1" "${@:2}"; }
