# What the packaging scripts share; sourced, not run.
#
#   LEGWORK_TOOLS   where build tools are installed, target/packaging by default; several clones can
#                   share one
#   LEGWORK_DIST    where packages land, target/dist by default

set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
tools=${LEGWORK_TOOLS:-$root/target/packaging}
dist=${LEGWORK_DIST:-$root/target/dist}

# The version of everything is that of the workspace.
version=$(sed -n '/^\[workspace\.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$root/Cargo.toml")

# The architectures, as Linux calls them.
architectures=(x86_64 aarch64)

# Times inside packages: that of the commit, so that two builds of it are equal.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 315532800)
fi
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC
umask 022

note() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
fail() {
    note "$@"
    exit 1
}

# The comment at the head of the script, for --help.
usage() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"; }

# The static program of an architecture.
static_program() { echo "$dist/legwork-$version-$1-linux-musl"; }

# Builds the static programs that are not there yet.
need_static() {
    local architecture
    for architecture in "$@"; do
        [ -x "$(static_program "$architecture")" ] ||
            "$root/packaging/static.sh" "$architecture"
    done
}

# Installs Python packages, at these versions, into an environment of their own: NAME PACKAGE…
# Its folder is in $environment afterwards.
python_environment() {
    environment=$tools/$1
    shift
    [ "$(cat "$environment/complete" 2>/dev/null)" = "$*" ] && return
    rm -rf "$environment"
    python3 -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check "$@"
    echo "$*" >"$environment/complete"
}

# Unpacks Debian packages below a folder, without installing them: FOLDER PACKAGE…
unpack_debian() {
    local folder=$1 package
    shift
    [ "$(cat "$folder/complete" 2>/dev/null)" = "$*" ] && return
    command -v apt-get >/dev/null || fail "no apt-get here to get $* with"
    rm -rf "$folder"
    mkdir -p "$folder/packages"
    (cd "$folder/packages" && apt-get --quiet --quiet download "$@" 2>&1 | grep -v '^W:' >&2 || true)
    for package in "$folder"/packages/*.deb; do
        [ -e "$package" ] || fail "apt-get could not download $*"
        dpkg --extract "$package" "$folder"
    done
    rm -rf "$folder/packages"
    echo "$*" >"$folder/complete"
}
