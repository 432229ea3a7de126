// An editor that starts `legwork acp` with an agent, and lets it use terminals.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { Readable, Writable } from "node:stream";

import { client, methods, ndJsonStream } from "@agentclientprotocol/sdk";

const [legwork, state, workspace] = process.argv.slice(2);
const agent = path.join(import.meta.dirname, "agent.mjs");

/** How long all of it may take before it has failed. */
const PATIENCE_MS = 60000;
setTimeout(() => {
  console.error("never ended");
  process.exit(1);
}, PATIENCE_MS).unref();

const inWorkspace = (name) => path.join(workspace, name);

async function until(holds) {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5));
}

function isAlive(pid) {
  try {
    return !/\) [ZX] /.test(fs.readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

async function pidIn(name) {
  await until(() => fs.existsSync(inWorkspace(name)) && fs.statSync(inWorkspace(name)).size > 1);
  return Number(fs.readFileSync(inWorkspace(name), "utf8"));
}

/** Starts the proxy; `answer` chooses an option of a question. */
async function open(options, answer) {
  const seen = { questions: [], updates: [] };
  const command = ["acp", "--state", state, ...options, "--", process.execPath, agent];
  const child = spawn(legwork, command, { stdio: ["pipe", "pipe", "inherit"] });
  const refused = () => {
    throw new Error("a terminal request reached the editor");
  };
  const connection = client({ name: "editor" })
    .onRequest(methods.client.session.requestPermission, ({ params }) => {
      seen.questions.push(params);
      const optionId = answer(params);
      return { outcome: optionId ? { outcome: "selected", optionId } : { outcome: "cancelled" } };
    })
    .onRequest(methods.client.fs.readTextFile, ({ params }) => ({ content: `of ${params.path}` }))
    .onRequest(methods.client.terminal.create, refused)
    .onRequest(methods.client.terminal.output, refused)
    .onNotification(methods.client.session.update, ({ params }) => seen.updates.push(params.update))
    .connect(ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout)));
  const editor = connection.agent;
  await editor.request(methods.agent.initialize, {
    protocolVersion: 1,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: false } },
  });
  const opened = { cwd: workspace, mcpServers: [] };
  const { sessionId } = await editor.request(methods.agent.session.new, opened);
  const play = async (scenario, more = {}) => {
    const prompt = [{ type: "text", text: JSON.stringify({ scenario, ...more }) }];
    const done = await editor.request(methods.agent.session.prompt, { sessionId, prompt });
    return done._meta.saw;
  };
  const close = async () => {
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.stdin.end();
    return ended;
  };
  const end = () => editor.request(methods.agent.session.close, { sessionId });
  return { play, seen, end, close };
}

{
  const { play, seen, end, close } = await open(["--sandbox", "none"]);
  const capabilities = await play("capabilities");
  assert.equal(capabilities.terminal, true, "there are terminals, whatever the editor has");
  assert.deepEqual(capabilities.fs, { readTextFile: true, writeTextFile: false });

  const runs = await play("runs", { cwd: workspace });
  assert.match(runs.id, /^t_/);
  assert.deepEqual(runs.exit, { exitCode: 3, signal: null });
  assert.equal(runs.output.output, `hello a b\noops\n${workspace}\n`);
  assert.deepEqual([runs.output.truncated, runs.output.exitStatus], [false, runs.exit]);
  assert.equal(runs.gone, -32002);

  const limits = await play("limits");
  assert.deepEqual([limits.output, limits.truncated], ["éé", true]);

  const kills = await play("kills");
  assert.deepEqual([kills.before.output, kills.before.exitStatus], ["started\n", undefined]);
  assert.deepEqual(kills.exit, { exitCode: null, signal: "SIGTERM" });
  assert.deepEqual(kills.after.exitStatus, kills.exit);
  assert.ok(!isAlive(await pidIn("pid")));

  assert.deepEqual(await play("reads"), { content: "of /some/file" });

  const shows = play("shows");
  const texts = () =>
    seen.updates.flatMap((update) => update.content.map((part) => part.content?.text));
  await until(() => texts().length > 0);
  fs.writeFileSync(inWorkspace("go"), "");
  await shows;
  // The library hands notifications over apart from answers.
  await until(() => /exit code 0$/.test(texts().at(-1)));
  assert.match(texts().at(-1), /shown\nend\n```\nexit code 0$/);
  assert.ok(seen.updates.every((update) => update.toolCallId === "call-1"));
  assert.equal(seen.questions.length, 0);

  assert.deepEqual(await play("hoards"), { count: 256, kind: "limit_exceeded" });

  for (const leave of [end, close]) {
    await play("leaves");
    const left = await pidIn("left");
    assert.ok(isAlive(left));
    await leave();
    // A session is closed before its commands have ended; a connection is not.
    if (leave === end) await until(() => !isAlive(left));
    assert.ok(!isAlive(left), "the end of the session or the connection ends its commands");
    fs.rmSync(inWorkspace("left"));
  }
}

{
  const answers = ["allow_once", "deny", undefined];
  const { play, seen, close } = await open([], () => answers[seen.questions.length - 1]);
  const allowed = await play("asks", { command: "rm -rf x0" });
  assert.deepEqual(allowed.exit, { exitCode: 0, signal: null });
  const denied = await play("asks", { command: "rm -rf x1" });
  assert.equal(denied.kind, "approval_refused");
  const unanswered = await play("asks", { command: "rm -rf x2" });
  assert.equal(unanswered.kind, "approval_unavailable");
  const [question] = seen.questions;
  assert.deepEqual([question.sessionId, question.toolCall.title], ["session-1", "rm -rf x0"]);
  assert.match(question.toolCall.content[0].content.text, /May this command run\?/);
  assert.ok(question.options.some((it) => it.optionId === "deny" && it.kind === "reject_once"));
  const outside = await play("asks", { command: "touch /legwork-outside" });
  assert.notEqual(outside.exit?.exitCode, 0, "the sandbox confines");
  assert.equal(await close(), 0);
}
console.log("all well");
process.exit(0);
