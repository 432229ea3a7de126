#!/usr/bin/env bash
# Installs the program with cargo into an empty folder, and uses it: cargo.sh VERSION
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Unoptimised, since it is looked at whether it installs, and not how fast it is.
cargo install --quiet --locked --debug --no-track --root "$folder" --path "$here/../../crates/cli"
mkdir "$folder/home"
export HOME=$folder/home VERSION=$1
source "$here/check.sh"
check "$folder/bin/legwork"
