#!/usr/bin/env bash
# Packages the crates as for crates.io, and builds each from its package alone; publishes nothing.
#
# Leaves target/package/*.crate. Each crate must have what a page there shows, and both licences.

source "$(dirname "$0")/lib.sh"
[[ ${1:-} != -* ]] || { usage; exit 0; }

crates=(legwork-gate legwork-warden legwork legwork-cli)
cd "$root"
python3 - "${crates[@]}" <<'PYTHON'
import json, subprocess, sys

command = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"]
packages = {each["name"]: each for each in json.loads(subprocess.check_output(command))["packages"]}
published = sorted(name for name, each in packages.items() if each["publish"] != [])
if published != sorted(sys.argv[1:]):
    sys.exit(f"crates that may be published: {published}; expected: {sys.argv[1:]}")
for name in published:
    for key in ("description", "license", "repository", "readme", "keywords", "categories"):
        if not packages[name][key]:
            sys.exit(f"{name} has no {key}")
PYTHON
# It builds them in the order of their dependencies, each against the packages of the others.
selected=()
for crate in "${crates[@]}"; do selected+=(--package "$crate"); done
without_time cargo package --locked "${selected[@]}"
for crate in "${crates[@]}"; do
    package=target/package/$crate-$version.crate
    content=$(tar --list --gzip --file "$package")
    for file in LICENSE-MIT LICENSE-APACHE README.md Cargo.lock; do
        grep --quiet --line-regexp "$crate-$version/$file" <<<"$content" || fail "$crate has no $file"
    done
    note "$package ($(stat -c %s "$package") bytes, $(wc -l <<<"$content") files)"
done
