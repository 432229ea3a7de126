#!/usr/bin/env bash
# Writes the Homebrew formula: target/dist/legwork.rb, for the static programs in target/dist.
#
# The formula takes the program of the machine from the release's page and makes completions and
# manual pages with it. It belongs into a repository of its own (a "tap"). Programs that are not in
# target/dist are built first (static.sh).

source "$(dirname "$0")/lib.sh"
[[ ${1:-} != -* ]] || { usage; exit 0; }

need_static "${architectures[@]}"
repository=$(sed -n 's/^repository = "\(.*\)"$/\1/p' "$root/Cargo.toml")
filled=(-e "s|@VERSION@|$version|g" -e "s|@REPOSITORY@|$repository|g")
for architecture in "${architectures[@]}"; do
    digest=$(sha256sum "$(static_program "$architecture")" | cut -d ' ' -f 1)
    filled+=(-e "s|@SHA256_$architecture@|$digest|g")
done
out=$dist/legwork.rb
sed "${filled[@]}" "$root/packaging/homebrew/legwork.rb.in" >"$out"
if grep -n '@[A-Za-z0-9_]*@' "$out"; then
    fail "a place in the formula was not filled in"
fi
if command -v ruby >/dev/null; then
    ruby -c "$out" >/dev/null || fail "the formula is not Ruby"
fi
note "$out"
