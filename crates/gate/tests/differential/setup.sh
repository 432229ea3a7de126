command_not_found_handle() {
    printf '%s\n' "${1//$'\n'/ }" >&9
    case $1 in *f) return 1 ;; esac
    return 0
}
enable -n exec kill source . cd pushd popd ulimit umask hash trap alias bind disown suspend fc history \
    logout exit set shopt enable
