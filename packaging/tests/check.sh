# Sourced by the tests in a fresh system: `check COMMAND…` holds a `legwork` to its promises.

failed() {
    echo "FAILED: $*" >&2
    exit 1
}

# The words of a text are there: TEXT WORDS
has() {
    case $1 in
        *"$2"*) ;;
        *) failed "no \"$2\" in: $1" ;;
    esac
}

# Commands run, are sandboxed, are recorded.
check() {
    echo "== $*"
    rm -rf "$HOME/project" "$HOME/elsewhere"
    mkdir "$HOME/project" "$HOME/elsewhere"
    cd "$HOME/project"
    export LEGWORK_STATE=$HOME/project-state
    rm -rf "$LEGWORK_STATE"

    has "$("$@" --version)" "legwork $VERSION"
    text=$("$@" call ExecCommand '{"cmd":"echo hi"}')
    has "$text" "Process exited with code 0"
    has "$text" "hi"
    code=0
    "$@" run -- sh -c 'exit 5' || code=$?
    [ "$code" = 5 ] || failed "exit code $code instead of 5"

    # The folder could be written by this user, and is not by a command. What may be, is.
    "$@" call ExecCommand '{"cmd":"echo in > inside"}' >/dev/null
    [ -f inside ] || failed "the workspace is not written"
    code=0
    text=$("$@" call ExecCommand "{\"cmd\":\"echo out > $HOME/elsewhere/outside\"}") || code=$?
    [ ! -e "$HOME/elsewhere/outside" ] || failed "a command wrote outside its workspace"
    has "$text" "Process exited with code"
    "$@" doctor >"$HOME/doctor" || failed "doctor: $(cat "$HOME/doctor")"
    grep "^Protection" "$HOME/doctor"

    text=$("$@" ps)
    has "$text" "echo hi"
    has "$text" "exit 5"
    has "$("$@" logs "$("$@" ps --quiet | tail -n 1)")" "hi"
}
