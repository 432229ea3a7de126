// An agent that uses its client's terminals, as a prompt tells it: what it saw goes back as data.
import { Readable, Writable } from "node:stream";

import { agent, methods, ndJsonStream } from "@agentclientprotocol/sdk";

let capabilities;

/** Each scenario gets the client and the session, and returns what it saw. */
const scenarios = {
  capabilities: async () => capabilities,

  // Output is polled until the command ends; env, args and the folder reach it.
  async runs(client, sessionId, { cwd }) {
    const env = [{ name: "GREETING", value: "hello" }];
    const script = 'echo "$GREETING $0"; echo oops >&2; pwd; exit 3';
    const args = ["-c", script, "a b"];
    const terminal = await client.createTerminal({ sessionId, command: "sh", args, env, cwd });
    const exit = await terminal.waitForExit();
    const output = await terminal.currentOutput();
    await terminal.release();
    const gone = await terminal.currentOutput().catch((error) => error.code);
    return { id: terminal.id, exit, output, gone };
  },

  // Without arguments a command is a line for a shell; the end of its output is kept.
  async limits(client, sessionId) {
    const command = "printf 'é%.0s' 1 2 3 4 | cat";
    const terminal = await client.createTerminal({ sessionId, command, outputByteLimit: 5 });
    await terminal.waitForExit();
    const output = await terminal.currentOutput();
    await terminal.release();
    return output;
  },

  async kills(client, sessionId) {
    const command = "echo started; echo $$ > pid; exec sleep 600";
    const terminal = await client.createTerminal({ sessionId, command });
    let output;
    do output = await terminal.currentOutput();
    while (!output.output);
    const waiting = terminal.waitForExit();
    await terminal.kill();
    const seen = { before: output, exit: await waiting, after: await terminal.currentOutput() };
    await terminal.release();
    return seen;
  },

  // Left running: the end of the connection ends it.
  async leaves(client, sessionId) {
    const command = "echo $$ > left; exec sleep 600";
    return (await client.createTerminal({ sessionId, command })).id;
  },

  // More than may be open at once.
  async hoards(client, sessionId) {
    const opened = [];
    for (;;) {
      try {
        opened.push(await client.createTerminal({ sessionId, command: "true" }));
      } catch (error) {
        await Promise.all(opened.map((terminal) => terminal.release()));
        return { count: opened.length, kind: error.data?.kind };
      }
    }
  },

  async asks(client, sessionId, { command }) {
    try {
      const terminal = await client.createTerminal({ sessionId, command });
      return { exit: await terminal.waitForExit() };
    } catch (error) {
      return { message: error.message, kind: error.data?.kind };
    }
  },

  // Other requests reach the editor as they are.
  reads: (client, sessionId) =>
    client.request(methods.client.fs.readTextFile, { sessionId, path: "/some/file" }),

  async shows(client, sessionId) {
    const command = "echo shown; until [ -e go ]; do sleep 0.01; done; echo end";
    const terminal = await client.createTerminal({ sessionId, command });
    const content = [{ type: "terminal", terminalId: terminal.id }];
    const update = { sessionUpdate: "tool_call", toolCallId: "call-1", title: "x", content };
    await client.notify(methods.client.session.update, { sessionId, update });
    await terminal.waitForExit();
    await terminal.release();
    return null;
  },
};

const connection = agent({ name: "scripted" })
  .onRequest(methods.agent.initialize, ({ params }) => {
    capabilities = params.clientCapabilities;
    const agentInfo = { name: "scripted-agent", version: "1" };
    return { protocolVersion: params.protocolVersion, agentCapabilities: {}, agentInfo };
  })
  .onRequest(methods.agent.session.new, () => ({ sessionId: "session-1" }))
  .onRequest(methods.agent.session.close, () => ({}))
  .onRequest(methods.agent.session.prompt, async ({ params, client }) => {
    const { scenario, ...more } = JSON.parse(params.prompt[0].text);
    const saw = await scenarios[scenario](client, params.sessionId, more);
    return { stopReason: "end_turn", _meta: { saw } };
  })
  .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
await connection.closed;
