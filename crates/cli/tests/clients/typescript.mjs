// Drives `legwork serve` with the official TypeScript client: package 1.x, and 2.x in both eras.
import assert from "node:assert/strict";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";

const [flavour, open, guarded, token, workspace] = process.argv.slice(2);
const isModern = flavour === "v2-modern";

/** How long all of it may take before it has failed. */
const PATIENCE_MS = 60000;
setTimeout(() => {
  console.error("never ended");
  process.exit(1);
}, PATIENCE_MS).unref();

/** Connects; `person` answers questions. */
async function connect(url, person) {
  const capabilities = person ? { elicitation: {} } : {};
  const info = { name: "typescript", version: "1" };
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  const reconnectionOptions = {
    initialReconnectionDelay: 10,
    maxReconnectionDelay: 100,
    reconnectionDelayGrowFactor: 1.5,
    maxRetries: 50,
  };
  const options = { requestInit, reconnectionOptions };
  if (flavour === "v1") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const http = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const { ElicitRequestSchema } = await import("@modelcontextprotocol/sdk/types.js");
    const client = new Client(info, { capabilities });
    if (person) client.setRequestHandler(ElicitRequestSchema, person);
    const transport = new http.StreamableHTTPClientTransport(new URL(url), options);
    await client.connect(transport);
    const call = (name, args, more) =>
      client.callTool({ name, arguments: args }, undefined, more);
    return { client, transport, call };
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const mode = isModern ? { pin: "2026-07-28" } : "legacy";
  const client = new Client(info, { capabilities, versionNegotiation: { mode } });
  if (person) client.setRequestHandler("elicitation/create", person);
  const transport = new StreamableHTTPClientTransport(new URL(url), options);
  await client.connect(transport);
  const call = (name, args, more) => client.callTool({ name, arguments: args }, more);
  return { client, transport, call };
}

const inWorkspace = (name) => path.join(workspace, name);
const touch = (name) => fs.writeFileSync(inWorkspace(name), "");
const text = (result) => {
  assert.equal(result.content.length, 1, JSON.stringify(result));
  return result.content[0].text;
};

/** Waits until something holds. */
async function until(holds) {
  while (!holds()) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** The process id that a command has written, with a line end. */
async function announced(name) {
  const read = () => fs.existsSync(inWorkspace(name)) && fs.readFileSync(inWorkspace(name), "utf8");
  await until(() => read() && read().endsWith("\n"));
  return Number(read());
}

function isAlive(pid) {
  try {
    return !fs.readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ");
  } catch {
    return false;
  }
}

/** A command that prints a line, then waits for a file. */
const waiting = (file) => ({
  cmd: `echo ran >> ${file}-runs; echo waiting; until [ -e ${file} ]; do sleep 0.01; done; echo done`,
  login: false,
  yield_time_ms: 600000,
});

async function listsAndCalls() {
  const { client, transport, call } = await connect(open);
  assert.equal(client.getServerVersion().name, "legwork");
  assert.equal(Boolean(transport.sessionId), !isModern, "only the older era has sessions");
  const { tools } = await client.listTools();
  const names = "ExecCommand TaskList TaskStatus TaskOutput TaskInput TaskStop TaskWait";
  assert.equal(tools.map((tool) => tool.name).join(" "), names);
  const result = await call("ExecCommand", { cmd: "echo hi; exit 3", login: false });
  assert.equal(text(result), "Process exited with code 3\n\nstdout:\nhi");
  await assert.rejects(call("Nothing", {}), /there is no tool `Nothing`/);
  if (!isModern) await transport.terminateSession();
  await client.close();
}

async function hearsOfProgress() {
  const { client, call } = await connect(open);
  const heard = [];
  // The command ends only when its line has been heard of.
  const onprogress = (progress) => {
    heard.push(progress);
    if (progress.message === "waiting") touch("heard");
  };
  const result = await call("ExecCommand", waiting("heard"), { onprogress });
  assert.match(text(result), /done$/);
  assert.ok(heard.every((one, at) => at === 0 || one.progress > heard[at - 1].progress));
  await client.close();
}

async function cancels() {
  const { client, call } = await connect(open);
  const controller = new AbortController();
  const cmd = "echo $$ > cancelled; exec sleep 600";
  const options = { signal: controller.signal };
  const called = call("ExecCommand", { cmd, login: false, yield_time_ms: 600000 }, options);
  const pid = await announced("cancelled");
  assert.ok(isAlive(pid));
  controller.abort("enough");
  await assert.rejects(called);
  await until(() => !isAlive(pid));
  // The connection is good for more.
  const result = await call("ExecCommand", { cmd: "echo after", login: false });
  assert.match(text(result), /after$/);
  await client.close();
}

async function answersQuestions() {
  const asked = [];
  const answers = [
    { action: "accept", content: { decision: "allow_once" } },
    { action: "accept", content: { decision: "deny", note: "use make" } },
    { action: "decline" },
    { action: "cancel" },
  ];
  const { client, call } = await connect(guarded, async ({ params }) => {
    asked.push(params.message);
    return answers[asked.length - 1];
  });
  const told = [/exited with code 0/, /use make/, /approval_refused/, /approval_unavailable/];
  for (const [number, expected] of told.entries()) {
    const cmd = `touch asked-${number}`;
    assert.match(text(await call("ExecCommand", { cmd, login: false })), expected);
    assert.equal(asked.length, number + 1, "each is asked once");
    assert.ok(asked[number].includes(cmd), asked[number]);
    assert.equal(fs.existsSync(inWorkspace(`asked-${number}`)), number === 0);
  }
  await client.close();
}

/** A way to the server that can be cut. */
async function cuttable(url) {
  const { hostname, port } = new URL(url);
  const pairs = new Set();
  // Those whose newest request has no answer yet, not even the head of one.
  const asking = new Set();
  let cameBack;
  const server = net.createServer((near) => {
    cameBack?.resolve();
    const far = net.connect(Number(port), hostname);
    const pair = [near, far];
    pairs.add(pair);
    const end = () => {
      pair.forEach((socket) => socket.destroy());
      pairs.delete(pair);
      asking.delete(pair);
    };
    pair.forEach((socket) => socket.on("error", end).on("close", end));
    near.on("data", () => asking.add(pair));
    far.on("data", () => asking.delete(pair));
    near.pipe(far).pipe(near);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  /** Cuts every connection; resolves when the client comes back. */
  const cut = () => {
    cameBack = Promise.withResolvers();
    [...pairs].forEach((pair) => pair.forEach((socket) => socket.destroy()));
    return cameBack.promise;
  };
  const own = `http://127.0.0.1:${server.address().port}/mcp`;
  return { url: own, cut, isAnswered: () => asking.size === 0, close: () => server.close() };
}

async function resumes() {
  const way = await cuttable(open);
  const { client, call } = await connect(way.url);
  // Once with something heard before the cut, once with nothing: then the answer may be the
  // first message of its stream.
  for (const [file, isTold] of [["cut-told", true], ["cut-untold", false]]) {
    const heard = Promise.withResolvers();
    const options = isTold ? { onprogress: heard.resolve } : {};
    const called = call("ExecCommand", waiting(file), options);
    await (isTold ? heard.promise : until(() => fs.existsSync(inWorkspace(`${file}-runs`))));
    // A request that has no answer at all is none that could be resumed.
    await until(way.isAnswered);
    way.cut();
    touch(file);
    const result = await called;
    assert.match(text(result), /done$/);
    assert.equal(fs.readFileSync(inWorkspace(`${file}-runs`), "utf8"), "ran\n", "it ran once");
  }
  await client.close();
  way.close();
}

/** A question is open while the connection breaks: it is asked once, and its answer counts. */
async function resumesWhileAsked() {
  const way = await cuttable(guarded);
  const asked = [];
  const { client, call } = await connect(way.url, async ({ params }) => {
    asked.push(params.message);
    await way.cut();
    return { action: "accept", content: { decision: "allow_once" } };
  });
  const result = await call("ExecCommand", { cmd: "touch cut-asked", login: false });
  assert.match(text(result), /exited with code 0/);
  assert.equal(asked.length, 1);
  assert.ok(fs.existsSync(inWorkspace("cut-asked")));
  await client.close();
  way.close();
}

/** In the newer era there is nothing to resume: whoever leaves has cancelled the call. */
async function leaves() {
  const way = await cuttable(open);
  const { client, call } = await connect(way.url);
  const cmd = "echo $$ > left; exec sleep 600";
  const called = call("ExecCommand", { cmd, login: false, yield_time_ms: 600000 });
  const failed = assert.rejects(called);
  const pid = await announced("left");
  way.cut();
  await failed;
  await until(() => !isAlive(pid));
  const result = await call("ExecCommand", { cmd: "echo after", login: false });
  assert.match(text(result), /after$/);
  await client.close();
  way.close();
}

const steps = [listsAndCalls, hearsOfProgress, cancels, answersQuestions];
steps.push(...(isModern ? [leaves] : [resumes, resumesWhileAsked]));
for (const step of steps) {
  await step();
  console.log(step.name);
}
console.log("all well");
process.exit(0);
