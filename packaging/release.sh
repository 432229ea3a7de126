#!/usr/bin/env bash
# The release checklist: release.sh --dry-run [--only STEPS | --skip STEPS], or release.sh CHANNEL…
#
#   --dry-run       run every step, then print what would be published, in which order
#   --only a,b      run these steps alone
#   --skip a,b      run all but these steps
#   --again         run also what has passed before, for this commit and these packages
#   --list          print the steps and the channels, and run nothing
#
# Without --dry-run it publishes to the channels that are named, after every step has passed. It refuses
# before it builds anything if a channel is not configured, HEAD has no tag vVERSION, or none is named.
# Each step prints one line, and what it printed itself is in target/release-logs/STEP.log. Failed steps
# are named at the end; the next run goes on there: cargo keeps what is built, and a long check that has
# passed is not repeated. Exit code 0: every step passed. docs/releasing.md says more.

source "$(dirname "$0")/lib.sh"
logs=$root/target/release-logs

# A step is a function with its name. Behind the colon: the step without which it makes no sense.
steps=(
    tree: tools: versions: changelog: suite:
    notices: static: wheel:static npm:static linux:static mcpb:static oci:static homebrew:static sbom: crates:
    checksums:static
    test-static:static test-wheel:wheel test-npm:npm test-deb:linux test-rpm:linux test-mcpb:mcpb
    test-oci:oci test-cargo: reproduce:static
)

# Long checks, which are kept once they have passed: those of the sources, and those of the packages.
of_sources=(suite crates test-cargo reproduce)
of_packages=(test-static test-wheel test-npm test-deb test-rpm test-mcpb test-oci)

# What can be withdrawn is published before what cannot.
channels=(page image npm pypi crates homebrew)

in_root() { (cd "$root" && without_time "$@"); }
packaging() { "$root/packaging/$1" "${@:2}"; }

tree() {
    local changed
    changed=$(git -C "$root" status --porcelain)
    [ -z "$changed" ] || { echo "not committed:"; echo "$changed"; return 1; }
}
tools() {
    # Debian's own are too old.
    type -P cargo >/dev/null || fail "no cargo here: install Rust with rustup"
    type -P npm >/dev/null || fail "no npm here: install Node 20.5 or newer"
    need_programs git gcc cpio perl python3 ip:iproute2 unshare:util-linux \
        qemu-system-aarch64:qemu-system-arm
    python3 -c 'import ensurepip, venv' 2>/dev/null || need_programs python3-venv
    node -e 'const [major, minor] = process.versions.node.split(".").map(Number);
        process.exit(major > 20 || (major === 20 && minor >= 5) ? 0 : 1)' ||
        fail "node is $(node --version), and 20.5 or newer is needed"
}
versions() { in_root cargo test --locked --package legwork-cli --test e2e -- packaging::; }
changelog() {
    grep --quiet --line-regexp --extended-regexp "## $version( .*)?" "$root/CHANGELOG.md" && return
    echo "CHANGELOG.md has no section \"## $version\""
    # A rehearsal may be before the section is named.
    $dry_run && grep --quiet --line-regexp '## Unreleased' "$root/CHANGELOG.md" &&
        remark "\"Unreleased\" stands for $version"
}
suite() { in_root .ci/run; }
notices() { packaging notices.sh; }
static() { packaging static.sh; }
wheel() { packaging wheel.sh; }
npm() { packaging npm.sh; }
linux() { packaging linux.sh; }
mcpb() { packaging mcpb.sh; }
oci() { packaging oci.sh; }
homebrew() { packaging homebrew.sh; }
sbom() { packaging sbom.sh; }
crates() { packaging crates.sh; }
checksums() { packaging checksums.sh; }
test-static() { packaging test.sh static && packaging test.sh static aarch64; }
test-wheel() { packaging test.sh wheel; }
test-npm() { packaging test.sh npm; }
test-deb() { packaging test.sh deb; }
test-rpm() { packaging test.sh rpm; }
test-mcpb() { packaging test.sh mcpb; }
test-oci() { packaging test.sh oci; }
test-cargo() { packaging test.sh cargo; }
reproduce() { packaging reproduce.sh; }

# What a channel needs: variables of the environment, then programs.
needs() {
    case $1 in
        page) echo 'GH_TOKEN gh' ;;
        image) echo 'LEGWORK_IMAGE skopeo' ;;
        npm) echo 'NODE_AUTH_TOKEN npm' ;;
        pypi) echo 'UV_PUBLISH_TOKEN uv' ;;
        crates) echo 'CARGO_REGISTRY_TOKEN cargo' ;;
        homebrew) echo 'LEGWORK_TAP git' ;;
    esac
}

# The commands that publish to a channel, in the folder of the packages.
commands() {
    case $1 in
        page)
            echo "gh release create v$version --verify-tag --title v$version" \
                "--notes-file $logs/notes.md \$(cut --characters 67- SHA256SUMS) SHA256SUMS"
            ;;
        image)
            echo "skopeo copy --all oci-archive:legwork-$version-oci.tar" \
                "docker://\$LEGWORK_IMAGE:$version"
            ;;
        npm)
            # First what the main package names.
            local each
            for each in linux-x64-$version linux-arm64-$version "$version"; do
                echo "npm publish --access public ./legwork-npm-$each.tgz"
            done
            ;;
        pypi) echo "uv publish legwork_cli-$version-*.whl" ;;
        crates) echo "cargo publish --locked --workspace --manifest-path $root/Cargo.toml" ;;
        homebrew)
            echo "install -D -m 644 legwork.rb \$LEGWORK_TAP/Formula/legwork.rb"
            echo "git -C \$LEGWORK_TAP commit --message 'legwork $version' Formula/legwork.rb"
            ;;
    esac
}

# Prints what is missing to publish to a channel.
missing() {
    local variable program
    read -r variable program <<<"$(needs "$1")"
    [ -n "${!variable:-}" ] || echo "$1: the variable $variable is not set"
    type -P "$program" >/dev/null || echo "$1: there is no program $program"
}

# A remark for the line of the running step.
remark() { echo "$*" >"$logs/remark"; }

line() { printf '%-8s%-14s%s\n' "$@"; }

# What the sources are: the commit, and whatever differs from it.
sources() {
    local index
    index=$(mktemp)
    cp "$(git -C "$root" rev-parse --path-format=absolute --git-path index)" "$index"
    git -C "$root" rev-parse HEAD
    GIT_INDEX_FILE=$index git -C "$root" add --all
    GIT_INDEX_FILE=$index git -C "$root" write-tree
    rm "$index"
}

# What a step has looked at when it passed, for those that are kept; nothing for the others.
looked_at() {
    if listed "$1" "${of_sources[@]}"; then
        echo "$dry_run" "$at"
    elif listed "$1" "${of_packages[@]}"; then
        echo "$dry_run" "$at" "$(find "$dist" -type f -exec sha256sum {} + | sort | sha256sum)"
    fi
}

# Runs a step, and prints its line.
run() {
    local name=${1%%:*} after=${1#*:} log start kept code=0
    if [ ${#only[@]} -gt 0 ] && ! listed "$name" "${only[@]}"; then
        skipped+=("$name")
    elif listed "$name" "${skip[@]}"; then
        line skipped "$name"
        skipped+=("$name")
    elif [ -n "$after" ] && listed "$after" "${failed[@]}"; then
        line failed "$name" "not run, since $after failed"
        failed+=("$name")
    else
        log=$logs/$name.log start=$SECONDS kept=$(looked_at "$name")
        if [ -n "$kept" ] && ! $again && [ "$kept" = "$(cat "$logs/$name.passed" 2>/dev/null)" ]; then
            line ok "$name" "passed before"
            return
        fi
        rm -f "$logs/remark" "$logs/$name.passed"
        # As a program of its own, since a function that is asked for its success ignores errors.
        "$0" --step "$dry_run" "$name" >"$log" 2>&1 </dev/null || code=$?
        if [ "$code" = 0 ]; then
            [ -z "$kept" ] || echo "$kept" >"$logs/$name.passed"
            line ok "$name" "$((SECONDS - start)) s$(sed 's/^/, /' "$logs/remark" 2>/dev/null)"
        else
            line failed "$name" "$((SECONDS - start)) s, ${log#"$root/"}: $(tail -n 1 "$log")"
            failed+=("$name")
        fi
    fi
}

# Whether a word is among others: WORD OTHER…
listed() {
    local word=$1 other
    shift
    for other in "$@"; do [ "$word" != "$other" ] || return 0; done
    return 1
}

# Names that there are: KIND NAMES OF-ALL…
known() {
    local kind=$1 name
    local -n given=$2
    shift 2
    for name in "${given[@]}"; do listed "$name" "$@" || fail "no such $kind: $name"; done
}

# Refuses to publish where something is missing; nothing has been done then.
refuse_unless_configured() {
    local channel problems=()
    [ ${#publish[@]} -gt 0 ] ||
        fail "name the channels to publish to (${channels[*]}), or give --dry-run; nothing was done"
    for channel in "${publish[@]}"; do
        mapfile -t -O "${#problems[@]}" problems < <(missing "$channel")
    done
    [ "$(git -C "$root" rev-parse --quiet --verify "v$version^{commit}")" = \
        "$(git -C "$root" rev-parse HEAD)" ] || problems+=("the tag v$version is not at HEAD")
    [ ${#only[@]} -eq 0 ] && [ ${#skip[@]} -eq 0 ] || problems+=("a release runs every step")
    [ ${#problems[@]} -eq 0 ] && return
    printf '%s\n' "${problems[@]}" >&2
    fail "not configured; nothing was built and nothing was published"
}

# The section of this version, for the page of the release.
write_notes() {
    awk -v version="$version" '/^## /{on = $2 == version; next} on' "$root/CHANGELOG.md" \
        >"$logs/notes.md"
}

dry_run=false again=false only=() skip=() publish=() failed=() skipped=()
while [ $# -gt 0 ]; do
    case $1 in
        --dry-run) dry_run=true ;;
        --again) again=true ;;
        --only) IFS=, read -ra only <<<"${2:?names of steps}" && shift ;;
        --skip) IFS=, read -ra skip <<<"${2:?names of steps}" && shift ;;
        --list)
            printf 'step     %s\n' "${steps[@]%%:*}"
            printf 'channel  %s\n' "${channels[@]}"
            exit
            ;;
        --step)
            dry_run=$2
            "$3"
            exit
            ;;
        -*)
            usage
            exit 0
            ;;
        *) publish+=("$1") ;;
    esac
    shift
done
known step only "${steps[@]%%:*}"
known step skip "${steps[@]%%:*}"
known channel publish "${channels[@]}"
$dry_run || refuse_unless_configured

mkdir -p "$logs" "$dist"
at=$(sources | tr '\n' ' ')
for step in "${steps[@]}"; do run "$step"; done
if [ ${#failed[@]} -gt 0 ]; then
    fail "failed: ${failed[*]}; nothing was published"
fi

if $dry_run; then
    [ ${#publish[@]} -gt 0 ] || publish=("${channels[@]}")
    echo
    echo "Would publish $version from ${dist#"$root/"}, in this order; nothing was published:"
    for channel in "${publish[@]}"; do
        commands "$channel" | sed "s/^/  $channel: /"
        missing "$channel" | sed 's/^/    not configured: /'
    done
    [ ${#skipped[@]} -eq 0 ] || echo "Not run, and needed for a release: ${skipped[*]}"
    exit
fi

write_notes
for channel in "${channels[@]}"; do
    listed "$channel" "${publish[@]}" || continue
    commands "$channel" | while read -r command; do
        echo "+ $command"
        (cd "$dist" && bash -euo pipefail -c "$command" </dev/null)
    done || fail "publishing to $channel failed; the channels before it are published"
done
