# Read by every shell of the comparison before its text. Functions that call themselves end soon.
FUNCNEST=8
readonly FUNCNEST
command_not_found_handle() {
    printf '%s\n' "${1//$'\n'/ }" >&9
    case $1 in *f) return 1 ;; esac
    return 0
}
env() {
    printf '%s\n' env >&9
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
enable -n exec kill source . cd pushd popd ulimit umask hash trap alias bind disown suspend fc history \
    logout exit set shopt enable
