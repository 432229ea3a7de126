#!/usr/bin/env bash
# An npm registry on loopback: registry.sh install FOLDER, registry.sh serve FOLDER PACKAGE…
#
# `serve` starts it empty, publishes the packages into it, prints "published" and stays.
set -euo pipefail
verb=$1 folder=$2
shift 2

if [ "$verb" = install ]; then
    [ -e "$folder/complete" ] && exit
    rm -rf "$folder"
    mkdir -p "$folder"
    cd "$folder"
    # Its node-fetch is asked for by a tag that not every registry has.
    cat >package.json <<'JSON'
{
  "private": true,
  "dependencies": { "verdaccio": "6.8.0" },
  "overrides": { "node-fetch": "2.7.0" }
}
JSON
    npm install --loglevel error --no-audit --no-fund --ignore-scripts
    touch complete
    exit
fi

state=$(mktemp -d)
cat >"$state/config.yaml" <<YAML
storage: $state/storage
auth: { htpasswd: { file: $state/htpasswd, max_users: 10 } }
uplinks: {}
packages:
  '@*/*': { access: \$all, publish: \$all }
  '**': { access: \$all, publish: \$all }
max_body_size: 200mb
log: { type: stdout, format: pretty, level: warn }
YAML
node "$folder/node_modules/verdaccio/bin/verdaccio" --config "$state/config.yaml" --listen 127.0.0.1:4873 &
server=$!
export npm_config_registry=http://127.0.0.1:4873 npm_config_cache=$state/cache npm_config_userconfig=$state/npmrc
echo '//127.0.0.1:4873/:_authToken=anything' >"$state/npmrc"
until npm ping --silent 2>/dev/null; do
    kill -0 "$server"
    sleep 0.3
done
for package in "$@"; do
    npm publish --loglevel error --access public "$package"
done
echo "published: $#"
wait "$server"
