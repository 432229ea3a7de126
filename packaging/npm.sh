#!/usr/bin/env bash
# Builds the npm packages: npm.sh [ARCHITECTURE…], x86_64 and aarch64 by default.
#
# Writes target/dist/legwork-npm-VERSION.tgz, which is `legwork` with its library and its command, and
# target/dist/legwork-npm-linux-x64-VERSION.tgz, …-linux-arm64-…, which are `@legwork/linux-x64` and
# `@legwork/linux-arm64` with a static program each. The first names both as optional dependencies,
# so that npm takes the one that fits: nothing is downloaded or run at installation. Programs that are
# not in target/dist are built first (static.sh). Needs node 20.5 or newer, and npm.

source "$(dirname "$0")/lib.sh"
choose_architectures "$@"

# Packs a folder, under a name of ours: FOLDER NAME. The modes are the repository's, the times npm's
# own, which are always the same.
pack() {
    local packed
    packed=$(cd "$1" && npm pack --silent --ignore-scripts --pack-destination "$stage")
    install -m 644 "$stage/$packed" "$dist/$2"
    note "$dist/$2"
}

# The package with the library, compiled: it needs the compiler that its lock file names.
main_package() {
    local source=$root/clients/typescript work=$stage/typescript folder=$stage/legwork
    mkdir -p "$work" "$folder"
    cp -r "$source"/{src,package.json,package-lock.json,.npmrc,tsconfig.json,tsconfig.build.json} "$work"
    (cd "$work" && npm ci --silent && npm run --silent build)
    cp -r "$work/dist" "$folder/dist"
    chmod 755 "$folder/dist/bin.js"
    cp "$source/README.md" "$root"/LICENSE-{MIT,APACHE} "$folder"
    node - "$source/package.json" "$version" >"$folder/package.json" <<'NODE'
const [, , file, version] = process.argv;
const { scripts, devDependencies, ...about } = JSON.parse(require("fs").readFileSync(file, "utf8"));
const platforms = ["@legwork/linux-arm64", "@legwork/linux-x64"];
about.version = version;
about.optionalDependencies = Object.fromEntries(platforms.map((name) => [name, version]));
console.log(JSON.stringify(about, null, 2));
NODE
    pack "$folder" "legwork-npm-$version.tgz"
}

# The package of one platform, with nothing but the program.
platform_package() {
    local cpu=${node_names[$1]}
    local folder=$stage/linux-$cpu
    mkdir -p "$folder/bin"
    install -m 755 "$(static_program "$1")" "$folder/bin/legwork"
    cp "$root"/LICENSE-{MIT,APACHE} "$folder"
    cp "$notices" "$folder/THIRD-PARTY.txt"
    printf 'The program of the package `legwork` for Linux on %s.\n' "$cpu" >"$folder/README.md"
    cat >"$folder/package.json" <<JSON
{
  "name": "@legwork/linux-$cpu",
  "version": "$version",
  "description": "The program of legwork for Linux on $cpu",
  "license": "MIT OR Apache-2.0",
  "repository": { "type": "git", "url": "git+https://github.com/legwork/legwork.git" },
  "os": ["linux"],
  "cpu": ["$cpu"],
  "files": ["bin", "LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY.txt"],
  "preferUnplugged": true
}
JSON
    pack "$folder" "legwork-npm-linux-$cpu-$version.tgz"
}

command -v npm >/dev/null || fail "no npm here"
need_static "${chosen[@]}"
mkdir -p "$dist"
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
main_package
for architecture in "${chosen[@]}"; do
    platform_package "$architecture"
done
