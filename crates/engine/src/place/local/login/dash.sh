# Prints the whole state of a dash, but for its functions, which it cannot list. The order is that of bash.sh.
/bin/sh -c 'printf "%s\0" "$@"; printf "\0\0environment\0\0"; /bin/cat "/proc/$$/environ"' sh "$?" "$-" "$!" "$#" "$0" "$@"
printf '\0\0%s\0\0' state
{
  set
  export -p
  readonly -p
  alias
  set -o
  trap
  umask
  hash
  jobs
} 2>&1
for legwork_probe in /proc/$$/fd/*; do
  printf 'descriptor %s\n' "${legwork_probe##*/}"
done
[ /proc/$$/fd/0 -ef /dev/null ]
printf 'stdin %s\n' "$?"
for legwork_probe in status limits; do
  while IFS= read -r legwork_probe; do
    case $legwork_probe in
      Uid:* | Gid:* | Groups:* | Umask:* | Sig[BIC]* | Cap* | NoNewPrivs:* | Seccomp:* | *_allowed_list:* | Max\ *)
        printf '%s\n' "$legwork_probe" ;;
    esac
  done </proc/$$/$legwork_probe
done
read -r legwork_probe </proc/$$/oom_score_adj
printf 'oom %s\n' "$legwork_probe"
read -r legwork_probe </proc/$$/stat
set -- $legwork_probe
printf 'priority %s %s %s\n' "${18}" "${19}" "${41}"
legwork_probe=
read -r legwork_probe </proc/$$/task/$$/children
printf 'children %s\n' "$legwork_probe"
printf '\0\0%s\0\0' random "" end
printf 'stderr\n' >&2
