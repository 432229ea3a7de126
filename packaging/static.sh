#!/usr/bin/env bash
# Builds the static program: static.sh [ARCHITECTURE…], x86_64 and aarch64 by default.
#
# Writes target/dist/legwork-VERSION-ARCHITECTURE-linux-musl: linked with musl, stripped, with a
# random address in memory (static-pie). The same bytes come out in whatever folder it is built.
#
# zig, from PyPI, compiles the C code and links. Rust's standard library for musl is
# - that of the toolchain in use, to which rustup adds it where it is missing;
# - otherwise built from source: that of the toolchain (`rustup component add rust-src`),
# - or, where there is none, with Debian's compiler and its source (rustc-web, rust-web-src), which
#   are unpacked below target/packaging.
#
# What the profile says can be changed by cargo's variables, for a quick try:
#   CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 packaging/static.sh x86_64

source "$(dirname "$0")/lib.sh"
choose_architectures "$@"
targets=("${chosen[@]/%/-unknown-linux-musl}")

# Whether the compiler has a standard library for all targets.
has_libraries() {
    local target
    for target in "${targets[@]}"; do
        compgen -G "$sysroot/lib/rustlib/$target/lib/libstd-*" >/dev/null || return
    done
}

# The compiler, and how it gets standard libraries: sets $rustc, $sysroot and $build_std.
choose_compiler() {
    rustc=$(rustup which rustc 2>/dev/null || command -v rustc) || fail "no rustc here"
    sysroot=$("$rustc" --print sysroot) build_std=()
    has_libraries && return
    # Without --toolchain it is that of this folder, as for cargo below.
    (cd "$root" && rustup target add "${targets[@]}") >&2 || true
    has_libraries && return
    build_std=(-Zbuild-std=std,panic_unwind)
    if [ -e "$sysroot/lib/rustlib/src/rust/library/Cargo.lock" ]; then
        note "the standard library is built from the toolchain's source"
        return
    fi
    note "the standard library is built with Debian's compiler and source"
    local debian=$tools/rust-debian names=(rustc-web rust-web-src libstd-rust-web-dev)
    # The libraries of the compiler have a version in their names.
    names+=($(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts \
        --no-breaks --no-replaces --no-enhances rustc-web |
        grep -E '^(libstd-rust-web-[0-9.]+|libllvm[0-9]+)$' | sort -u))
    unpack_debian "$debian" "${names[@]}"
    rustc=$debian/usr/bin/rustc
    export LD_LIBRARY_PATH=$debian/usr/lib/x86_64-linux-gnu
    sysroot=$("$rustc" --print sysroot)
}

# Builds all programs at once: they share what runs while building, and their long links go side by
# side.
build() {
    # No path of this machine is in the program.
    local maps=("$root=/legwork" "${CARGO_HOME:-$HOME/.cargo}=/cargo" "$sysroot=/rust" "$tools=/tools")
    # zig takes no notice of -static-pie, which is what the compiler says.
    local rust_flags=(-Clink-arg=-pie) c_flags= selected=() map target
    # As in .cargo/config.toml, in whose place these flags are.
    rust_flags+=(-Csymbol-mangling-version=v0)
    for map in "${maps[@]}"; do
        rust_flags+=("--remap-path-prefix=$map")
        c_flags+=" -ffile-prefix-map=$map"
    done
    # musl and its start files come with the toolchain's standard library, otherwise from zig.
    [ ${#build_std[@]} -eq 0 ] || rust_flags+=(-Clink-self-contained=no)
    for target in "${targets[@]}"; do
        selected+=(--target "$target")
        export "CFLAGS_${target//-/_}=$c_flags"
    done
    export PATH=$environment/bin:$PATH RUSTC=$rustc CARGO_TARGET_DIR=$root/target/static
    export CARGO_ENCODED_RUSTFLAGS CARGO_PROFILE_RELEASE_STRIP=symbols
    CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${rust_flags[*]}")
    # No time is in the program, whatever the commit's.
    export SOURCE_DATE_EPOCH=315532800
    # A compiler builds the standard library only if that is allowed; nothing of ours uses what
    # else this allows.
    [ ${#build_std[@]} -eq 0 ] || export RUSTC_BOOTSTRAP=1
    cd "$root"
    cargo-zigbuild zigbuild --locked --release --package legwork-cli --bin legwork \
        "${selected[@]}" "${build_std[@]}"
}

# It is static, and neither needs a loader nor stands at a fixed address.
check() {
    python3 - "$1" <<'PYTHON'
import struct, sys

data = open(sys.argv[1], "rb").read()
kind, = struct.unpack_from("<H", data, 16)
table, = struct.unpack_from("<Q", data, 32)
size, count = struct.unpack_from("<HH", data, 54)
segments = [struct.unpack_from("<I", data, table + each * size)[0] for each in range(count)]
INTERPRETER, SHARED = 3, 3
if INTERPRETER in segments:
    sys.exit("static.sh: the program is not static: it names a loader")
if kind != SHARED:
    sys.exit("static.sh: the program stands at a fixed address")
PYTHON
}

zig_environment
choose_compiler
build
mkdir -p "$dist"
for architecture in "${chosen[@]}"; do
    built=$root/target/static/$architecture-unknown-linux-musl/release/legwork
    out=$(static_program "$architecture")
    check "$built"
    cmp --silent "$built" "$out" || install -m 755 "$built" "$out"
    note "$out ($(stat -c %s "$out") bytes)"
done
