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

# The architectures, as Linux calls them; then as Debian, nfpm and OCI do; then as Node does.
architectures=(x86_64 aarch64)
declare -A debian_names=([x86_64]=amd64 [aarch64]=arm64)
declare -A node_names=([x86_64]=x64 [aarch64]=arm64)

# Times inside packages: that of the commit, so that two builds of it are equal. Some crates look at
# it, too, and would be built again after each commit: so cargo is called without it.
if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null || echo 315532800)
fi
export SOURCE_DATE_EPOCH LC_ALL=C.UTF-8 TZ=UTC
umask 022

# Runs a command that compiles.
without_time() { env --unset=SOURCE_DATE_EPOCH "$@"; }

note() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
fail() {
    note "$@"
    exit 1
}

# The comment at the head of the script, for --help.
usage() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"; }

# The architectures that a script was given, into $chosen: all of them where none is named. Prints the
# help for an option.
choose_architectures() {
    local architecture
    [[ ${1:-} != -* ]] || { usage; exit 0; }
    [ $# -gt 0 ] || set -- "${architectures[@]}"
    mapfile -t chosen < <(printf '%s\n' "$@" | sort --unique)
    for architecture in "${chosen[@]}"; do
        [ -n "${node_names[$architecture]:-}" ] || fail "no such architecture: $architecture"
    done
}

# The static program of an architecture.
static_program() { echo "$dist/legwork-$version-$1-linux-musl"; }

# The licences of what is in it beside its own code.
notices=$dist/legwork-$version-third-party.txt

# Brings the static programs up to date, and those licences. Cargo knows whether there is anything to
# build, and takes a second where there is not.
need_static() {
    "$root/packaging/static.sh" "$@"
    if [ "$root/Cargo.lock" -nt "$notices" ] ||
        [ "$root/crates/cli/web/package-lock.json" -nt "$notices" ]; then
        "$root/packaging/notices.sh"
    fi
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

# zig, which compiles C code and links the static program.
zig_environment() { python_environment zig ziglang==0.17.0 cargo-zigbuild==0.24.0; }

# Programs that have to be here: PROGRAM or PROGRAM:PACKAGE, where Debian's package has another name.
# Those that are not are installed, where apt-get may do that, and named where it may not.
need_programs() {
    local each packages=()
    for each in "$@"; do
        type -P "${each%%:*}" >/dev/null || packages+=("${each#*:}")
    done
    [ ${#packages[@]} -gt 0 ] || return 0
    [ "$(id -u)" = 0 ] && type -P apt-get >/dev/null || fail "install these first: ${packages[*]}"
    note "installing ${packages[*]}"
    apt-get update --quiet --quiet
    apt-get install --quiet --quiet --yes --no-install-recommends "${packages[@]}" >&2
}

# Downloads Debian packages into the current folder: PACKAGE…
download_debian() {
    # By this user, whose folder others may not read.
    local download=(apt-get --quiet --quiet --option APT::Sandbox::User=root download "$@")
    "${download[@]}" >&2 && return
    # The lists may name files that the mirror no longer has.
    apt-get --quiet --quiet update && "${download[@]}" >&2
}

# Unpacks Debian packages below a folder, without installing them: FOLDER PACKAGE…
unpack_debian() {
    local folder=$1 package
    shift
    [ "$(cat "$folder/complete" 2>/dev/null)" = "$*" ] && return
    type -P apt-get >/dev/null || fail "no apt-get here to get $* with"
    rm -rf "$folder"
    mkdir -p "$folder/packages"
    (cd "$folder/packages" && download_debian "$@") || fail "apt-get could not download $*"
    for package in "$folder"/packages/*.deb; do
        dpkg --extract "$package" "$folder"
    done
    rm -rf "$folder/packages"
    echo "$*" >"$folder/complete"
}

# Unpacks Debian packages of an architecture with what they need, as a tar, without running anything of
# them: ARCHITECTURE TAR PACKAGE
extract_debian() {
    unpack_debian "$tools/mmdebstrap" mmdebstrap
    perl "$tools/mmdebstrap/usr/bin/mmdebstrap" --quiet --variant=extract --arch="$1" --include="$3" \
        bookworm "$2"
}
