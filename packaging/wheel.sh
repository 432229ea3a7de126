#!/usr/bin/env bash
# Builds the Python wheels: wheel.sh [ARCHITECTURE…], x86_64 and aarch64 by default.
#
# Writes target/dist/legwork_cli-VERSION-py3-none-….whl. A wheel has the static program, which pip
# puts on PATH as `legwork`, and the library `legwork_cli`. It serves glibc and musl. Programs that
# are not in target/dist are built first (static.sh).

source "$(dirname "$0")/lib.sh"
choose_architectures "$@"

need_static "${chosen[@]}"
for architecture in "${chosen[@]}"; do
    python3 "$root/packaging/wheel.py" --version "$version" --architecture "$architecture" \
        --program "$(static_program "$architecture")" --notices "$notices" --out "$dist"
done
