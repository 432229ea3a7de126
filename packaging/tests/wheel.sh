# The wheel, in a system with Python.
. /packages/check.sh
wheel=$(echo /packages/*.whl)
export PATH=/packages:$PATH UV_OFFLINE=1 UV_PYTHON_DOWNLOADS=never

check uvx --quiet --from "$wheel" legwork

python3 -m venv "$HOME/environment"
"$HOME/environment/bin/pip" install --quiet --no-index "$wheel"
check "$HOME/environment/bin/legwork"
check "$HOME/environment/bin/python" -m legwork_cli

# The library finds the program of its own wheel, although another is first on PATH.
cat >"$HOME/library.py" <<'PYTHON'
import sys
from legwork_cli import Legwork, find_program

print(find_program())
with Legwork(".") as lw:
    r = lw.run("echo hi; exit 3")
    assert (r.exit_code, r.stdout) == (3, "hi\n"), r
PYTHON
mkdir "$HOME/other"
printf '#!/bin/sh\nexit 9\n' >"$HOME/other/legwork"
chmod +x "$HOME/other/legwork"
echo "== library"
found=$(PATH=$HOME/other:$PATH "$HOME/environment/bin/python" "$HOME/library.py")
[ "$found" = "$HOME/environment/bin/legwork" ] || failed "the library uses $found"

echo "== library, pip install --target"
"$HOME/environment/bin/pip" install --quiet --no-index --target "$HOME/target" "$wheel"
found=$(PATH=$HOME/other:$PATH PYTHONPATH=$HOME/target python3 "$HOME/library.py")
[ "$found" = "$HOME/target/bin/legwork" ] || failed "the library uses $found"

echo "== types"
[ -f "$HOME/target/legwork_cli/py.typed" ] || failed "no py.typed"

echo "== musl and glibc take the wheel, other architectures do not"
take() {
    uv pip install --quiet --no-index --find-links /packages --python-platform "$1" \
        --target "$HOME/for-$1" legwork-cli
}
for platform in x86_64-unknown-linux-musl x86_64-manylinux_2_17 x86_64-unknown-linux-gnu; do
    take "$platform"
done
if take aarch64-unknown-linux-gnu 2>/dev/null; then
    failed "the wheel is taken for another architecture"
fi

# pipx brings a newer pip into its own environment first, which it cannot get here.
mkdir -p "$HOME/.local/bin"
PIPX_HOME=$HOME/pipx PIP_NO_INDEX=1 PIP_FIND_LINKS=/usr/share/python-wheels \
    pipx install "$wheel"
check "$HOME/.local/bin/legwork"
