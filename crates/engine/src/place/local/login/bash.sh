# Prints the whole state of a bash. First what any command would change, and what the first command gets.
/bin/sh -c 'printf "%s\0" "$@"; printf "\0\0environment\0\0"; /bin/cat "/proc/$$/environ"' sh "$?" "$-" "$!" "$#" "$0" "$@"
\builtin printf '\0\0%s\0\0' state
{
  \builtin declare -p
  \builtin declare -f
  \builtin declare -F
  \builtin alias -p
  \builtin shopt -p
  \builtin set -o
  \builtin trap -p
  \builtin umask
  \builtin hash -l
  \builtin enable -a
  \builtin complete -p
  \builtin jobs
  \builtin dirs
  \builtin history
} 2>&1
for legwork_probe in /proc/$$/fd/*; do
  \builtin printf 'descriptor %s\n' "${legwork_probe##*/}"
done
[[ /proc/$$/fd/0 -ef /dev/null ]]
\builtin printf 'stdin %s\n' "$?"
\builtin printf 'young %s\n' "$((SECONDS < 60))"
for legwork_probe in status limits; do
  while IFS= \builtin read -r legwork_probe; do
    case $legwork_probe in
      Uid:* | Gid:* | Groups:* | Umask:* | Sig[BIC]* | Cap* | NoNewPrivs:* | Seccomp:* | *_allowed_list:* | Max\ *)
        \builtin printf '%s\n' "$legwork_probe" ;;
    esac
  done </proc/$$/$legwork_probe
done
\builtin read -r legwork_probe </proc/$$/oom_score_adj
\builtin printf 'oom %s\n' "$legwork_probe"
\builtin read -r -a legwork_probe </proc/$$/stat
\builtin printf 'priority %s %s %s\n' "${legwork_probe[17]}" "${legwork_probe[18]}" "${legwork_probe[40]}"
\builtin read -r -d '' legwork_probe </proc/$$/task/$$/children
\builtin printf 'children %s\n' "$legwork_probe"
\builtin printf '\0\0%s\0\0' random "$RANDOM $RANDOM $RANDOM" end
\builtin printf 'stderr\n' >&2
