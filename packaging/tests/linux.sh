# The .deb or the .rpm, as root in a Debian with man and three shells: installed, used, removed.
. /packages/check.sh
export PATH=$PATH:/usr/sbin:/sbin

# All files of the system, but those where package managers and users keep their own.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /packages \
        -o -path /home -o -path /root -o -path /var/lib -o -path /var/cache -o -path /var/log \
        -o -path /.old \) -prune -o -print | sort
}

package=$(echo /packages/legwork*.deb /packages/legwork*.rpm | tr ' ' '\n' | grep -v '[*]')
echo "== $package"
# Systems with rpm have these folders, and Debian has not.
mkdir -p /usr/share/licenses /usr/share/zsh/site-functions
files >/tmp/before
case $package in
    *.deb)
        install() { dpkg --install "$package"; }
        remove() { dpkg --purge legwork; }
        version() { dpkg-query --show --showformat '${Version}' legwork; }
        zsh_folder=/usr/share/zsh/vendor-completions
        licence=/usr/share/doc/legwork/copyright
        ;;
    *.rpm)
        # Debian's rpm wants to be told that it is meant.
        install() { rpm --install --force-debian "$package"; }
        remove() { rpm --erase legwork; }
        version() { rpm --query --queryformat '%{VERSION}-%{RELEASE}' legwork; }
        zsh_folder=/usr/share/zsh/site-functions
        licence=/usr/share/licenses/legwork/LICENSE-APACHE
        rpm --checksig --nosignature "$package"
        ;;
esac
install
[ "$(version)" = "$VERSION-1" ] || failed "version $(version)"
for file in /usr/bin/legwork "$licence" /usr/share/doc/legwork/README.md \
    /usr/share/doc/legwork/docs/install.md "$zsh_folder/_legwork"; do
    [ -f "$file" ] || failed "no $file"
    [ "$(stat -c %U:%G "$file")" = root:root ] || failed "$file is not root's"
done
[ "$(stat -c %a /usr/bin/legwork)" = 755 ] || failed "the mode of the program"

su you -s /bin/sh -c "HOME=/home/you VERSION=$VERSION; export HOME VERSION
    set -eu; . /packages/check.sh; check legwork"

echo "== manual pages"
export MANPAGER=cat MANWIDTH=100
has "$(man legwork)" "Runs commands for AI agents"
has "$(man legwork)" "EXIT STATUS"
has "$(man legwork-run)" "legwork run -- cargo test"
for verb in $(man legwork | sed -n 's/^ *legwork-\([a-z-]*\)(1).*/\1/p'); do
    man --where "legwork-$verb" >/dev/null || failed "no page of $verb"
done
warnings=$(man --warnings -E UTF-8 -l /usr/share/man/man1/legwork.1.gz 2>&1 >/dev/null)
[ -z "$warnings" ] || failed "the page has faults: $warnings"

echo "== completions"
found=$(bash -c '. /usr/share/bash-completion/bash_completion
    _completion_loader legwork || [ $? = 124 ]
    COMP_WORDS=(legwork appro) COMP_CWORD=1; _legwork_with_ids legwork appro
    echo "${COMPREPLY[@]}"')
[ "$found" = "approvals approve" ] || failed "bash completes $found"
found=$(fish -c 'complete --do-complete "legwork appro"' | cut -f 1 | tr '\n' ' ')
[ "$found" = "approvals approve " ] || failed "fish completes $found"
case $package in
    *.deb) zsh_path= ;;
    # Debian's zsh looks elsewhere than those of systems with rpm.
    *.rpm) zsh_path="fpath+=($zsh_folder);" ;;
esac
found=$(zsh -f -c "$zsh_path autoload -Uz compinit; compinit -u -d /tmp/zcompdump
    echo \${_comps[legwork]}; autoload -Uz +X _legwork && whence -w _legwork")
has "$found" "_legwork: function"

echo "== removal"
remove
files >/tmp/after
left=$(diff /tmp/before /tmp/after) || failed "left behind or lost: $left"
