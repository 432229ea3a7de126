/** The library with the real program, over stdio and over HTTP. */

import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import fs from "node:fs";
import { createServer } from "node:net";
import os from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { type TestContext, describe, it } from "node:test";

import { limits } from "../src/conversation.js";
import {
  CommandFailed,
  ConnectionLost,
  Denied,
  Legwork,
  LegworkError,
  type LegworkOptions,
  type Question,
  type Replied,
  TaskEnded,
  WaitTimeout,
  findProgram,
  toolDefinitions,
} from "../src/index.js";
import { farewell } from "../src/stdio.js";

const PATIENCE_MS = 60_000;

/** Inside a sandbox a command sees other pids than this process does. */
const UNCONFINED = { sandbox: "none" } as const;

async function eventually<T>(what: string, find: () => T | false | undefined): Promise<T> {
  const end = performance.now() + PATIENCE_MS;
  for (;;) {
    const found = find();
    if (found) return found;
    if (performance.now() > end) throw new Error(`never happened: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

function isAlive(pid: number): boolean {
  try {
    return !/\) [ZX] /.test(fs.readFileSync(`/proc/${pid}/stat`, "utf8"));
  } catch {
    return false;
  }
}

const kind = (wanted: string) => (error: unknown) => {
  assert.ok(error instanceof LegworkError, String(error));
  assert.equal(error.kind, wanted);
  return true;
};

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" && address ? address.port : 0;
}

/** A folder, a state folder, and a way to connect. */
class Stage {
  readonly folder = fs.realpathSync(fs.mkdtempSync(path.join(os.tmpdir(), "legwork-ts-")));
  readonly workspace = path.join(this.folder, "workspace");
  readonly state = path.join(this.folder, "state");
  readonly env = { ...process.env, HOME: this.folder, SHELL: "/bin/sh" };
  server: ChildProcess | undefined;
  url = "";
  token = "";
  #serve: string[] = [];

  constructor(
    context: TestContext,
    readonly overHttp: boolean,
  ) {
    fs.mkdirSync(this.workspace);
    context.after(async () => {
      await this.end();
      fs.rmSync(this.folder, { recursive: true, force: true });
    });
  }

  file(name: string): string {
    return path.join(this.workspace, name);
  }

  async connect(options: LegworkOptions = {}): Promise<Legwork> {
    const { approve, ...more } = options;
    const asking = approve ? { approve } : {};
    const { workspace, state, env } = this;
    if (!this.overHttp) return Legwork.open({ workspace, state, env, ...options });
    if (!this.server) {
      const place = ["--state", state, "--workspace", workspace];
      const add = ["token", "add", "typescript", "--role", "operator", ...place];
      this.token = execFileSync(findProgram(), add, { stdio: ["ignore", "pipe", "ignore"] })
        .toString()
        .trim();
      const settings = Object.entries(more).flatMap(([name, value]) =>
        [value].flat().flatMap((each) => [`--${name}`, String(each)]),
      );
      const listen = ["--listen", `127.0.0.1:${await freePort()}`];
      this.#serve = ["serve", ...listen, ...place, ...settings];
      await this.begin();
    }
    return Legwork.open({ url: this.url, token: this.token, ...asking });
  }

  async begin(): Promise<void> {
    const { env } = this;
    this.server = spawn(findProgram(), this.#serve, { env, stdio: ["ignore", "pipe", "ignore"] });
    const lines = createInterface({ input: this.server.stdout! });
    this.url = await new Promise((resolve) => lines.once("line", resolve));
  }

  async end(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    const { server } = this;
    if (!server) return;
    this.server = undefined;
    const ended = new Promise((resolve) => server.once("exit", resolve));
    server.kill(signal);
    await ended;
  }

  programPid(lw: Legwork): number {
    return lw.pid ?? this.server?.pid ?? 0;
  }

  /** The pid that a command has written into a file, with a line end. */
  async pidIn(name: string): Promise<number> {
    const read = (): string | false =>
      fs.existsSync(this.file(name)) && fs.readFileSync(this.file(name), "utf8");
    return Number(await eventually(name, () => /\n$/.test(read() || "") && read()));
  }
}

for (const overHttp of [false, true]) {
  const test = (name: string, body: (stage: Stage) => Promise<void>) =>
    it(name, { timeout: PATIENCE_MS }, (context) => body(new Stage(context, overHttp)));

  describe(overHttp ? "over HTTP" : "over stdio", { concurrency: 2 }, () => {
    test("a command gives its code and exactly its output", async (stage) => {
      const lw = await stage.connect();
      const r = await lw.run("printf '\\n  a \\n\\n'; echo oops >&2; exit 3");
      assert.deepEqual([r.exitCode, r.stdout, r.stderr], [3, "\n  a \n\n", "oops\n"]);
      assert.deepEqual([r.ok, r.status, r.truncated], [false, "failed", false]);
      await assert.rejects(lw.run("false", { check: true }), (error) => {
        return error instanceof CommandFailed && error.result.exitCode === 1;
      });
      assert.deepEqual([(await lw.run("kill -9 $$")).signal], [9]);
      await lw.close();
    });

    test("errors have a kind", async (stage) => {
      const rules = path.join(stage.folder, "rules.toml");
      fs.writeFileSync(rules, 'excludeTools = ["run_shell_command(shred)"]\n');
      const lw = await stage.connect({ policy: [rules] });
      await assert.rejects(lw.run(" "), kind("invalid_tool_input"));
      await assert.rejects(lw.run("pwd", { workdir: "nowhere" }), kind("workdir_not_found"));
      await assert.rejects(lw.run("shred x"), kind("command_denied"));
      await assert.rejects(lw.run("rm -rf x"), (error) => {
        assert.ok(error instanceof Denied && error.retryable);
        assert.match(error.approvalId ?? "", /^a_/);
        return kind("approval_unavailable")(error);
      });
      await assert.rejects(lw.task("t_none").status(), kind("unknown_task"));
      await assert.rejects(lw.call("Nothing", {}), /there is no tool `Nothing`/);
      await lw.close();
    });

    test("big output is complete, and more is cut with a marker", async (stage) => {
      const lw = await stage.connect();
      const expected = Array.from({ length: 20_000 }, (_, at) => `${at + 1}\n`).join("");
      const whole = await lw.run("seq 20000");
      assert.ok(whole.stdout === expected && !whole.truncated);
      const cut = await lw.run("seq 20000", { maxOutput: 8_000 });
      assert.ok(cut.truncated && cut.stdout.startsWith("1\n2\n"));
      assert.match(cut.stdout, /left out[^]*\n20000\s*$/);
      await lw.close();
    });

    test("a timeout stops all, and keeps the output", async (stage) => {
      const lw = await stage.connect(UNCONFINED);
      const r = await lw.run("echo before; sleep 600 & echo $! > pid; wait", { timeoutMs: 500 });
      assert.deepEqual([r.timedOut, r.ok, r.stdout], [true, false, "before\n"]);
      assert.equal(r.status, "cancelled");
      assert.ok(!isAlive(await stage.pidIn("pid")));
      await lw.close();
    });

    test("calls run side by side", async (stage) => {
      const lw = await stage.connect();
      const numbers = Array.from({ length: 32 }, (_, at) => at);
      const found = await Promise.all(numbers.map((n) => lw.run(`echo ${n}`)));
      assert.deepEqual(found.map((r) => Number(r.stdout)), numbers);
      await lw.close();
    });

    test("a model reads the receipt, and a program the data", async (stage) => {
      const lw = await stage.connect();
      const answer = await lw.call("ExecCommand", { cmd: "echo hi; exit 3" });
      assert.equal(answer.text, "Process exited with code 3\n\nstdout:\nhi");
      assert.equal((await lw.call("ExecCommand", { cmd: "" })).isError, true);
      const names = (await lw.tools()).map((tool) => tool["name"]);
      const offered = toolDefinitions("anthropic") as { name: string }[];
      assert.deepEqual(offered.map((tool) => tool.name), names);
      assert.match(lw.instructions, /ExecCommand/);
      await lw.close();
    });

    test("a server is started, waited for, followed and stopped", async (stage) => {
      const port = await freePort();
      const lw = await stage.connect(UNCONFINED);
      const script = `require('net').createServer().listen(${port}, '127.0.0.1')`;
      const t = await lw.start(`echo serving; exec ${process.execPath} -e "${script}"`);
      assert.equal((await t.wait({ port })).condition, "port");
      const lines = t.lines();
      assert.deepEqual(await lines.next(), { value: "serving", done: false });
      const { pid } = await t.status();
      const stopped = await t.stop();
      assert.deepEqual([stopped.requested, stopped.survivors], [true, []]);
      assert.ok(!isAlive(pid ?? 0));
      assert.equal((await lines.next()).done, true);
      assert.equal((await t.result()).status, "cancelled");
      await lw.close();
    });

    test("waits that fail say why, and tasks take input", async (stage) => {
      const lw = await stage.connect();
      const t = await lw.start("read a; echo got $a; cat", { acceptsInput: true });
      await t.wait({ waitingForInput: true });
      await assert.rejects(t.wait({ output: "never", timeoutMs: 50 }), WaitTimeout);
      assert.equal(await t.send("x y\n", { waitMs: PATIENCE_MS }), "got x y");
      await t.send("rest", { eof: true });
      assert.equal((await t.result()).stdout, "got x y\nrest");
      await assert.rejects(t.send("more"), kind("input_refused"));
      await assert.rejects(t.wait({ path: "never" }), (error) => {
        return error instanceof TaskEnded && error.status.exitCode === 0;
      });
      const tty = await lw.start("stty size; read x; stty size; cat", { tty: true });
      await tty.wait({ waitingForInput: true });
      await tty.resize(40, 120);
      await tty.send("", { key: "enter" });
      await tty.wait({ output: "40 120" });
      assert.match(await tty.screen(), /24 80/);
      await tty.stop();
      assert.deepEqual(await lw.tasks(), []);
      await lw.close();
    });

    test("lines come once and in order", async (stage) => {
      const lw = await stage.connect();
      const found: string[] = [];
      for await (const line of (await lw.start("seq 10000; printf end")).lines()) found.push(line);
      assert.deepEqual([found.length, found[9999], found[10_000]], [10_001, "10000", "end"]);
      await lw.close();
    });

    test("a callback decides", async (stage) => {
      const asked: Question[] = [];
      const replies: Replied[] = [true, { decision: "deny", note: "use make" }, false, undefined];
      const approve = async (question: Question): Promise<Replied> => {
        asked.push(question);
        if (question.command.includes("boom")) throw new Error("boom");
        return replies[asked.length - 1];
      };
      const lw = await stage.connect({ approve });
      assert.ok((await lw.run("rm -rf x0")).ok);
      await assert.rejects(lw.run("rm -rf x1"), /use make/);
      await assert.rejects(lw.run("rm -rf x2"), kind("approval_refused"));
      await assert.rejects(lw.run("rm -rf x3"), kind("approval_unavailable"));
      const warned = new Promise((resolve) => process.once("warning", resolve));
      await assert.rejects(lw.run("rm -rf boom"), kind("approval_unavailable"));
      assert.match(String(await warned), /boom/);
      assert.equal(asked[0]?.command, "rm -rf x0");
      assert.match(asked[0]?.text ?? "", /May this command run\?/);
      assert.ok(asked[0]?.replies.includes("allow_session"));
      await lw.close();
    });

    test("an aborted call stops its command", async (stage) => {
      const lw = await stage.connect(UNCONFINED);
      const abort = new AbortController();
      const call = lw.run("echo $$ > pid; exec sleep 600", { signal: abort.signal });
      const pid = await stage.pidIn("pid");
      abort.abort(new Error("enough"));
      await assert.rejects(call, /enough/);
      await eventually("it was stopped", () => !isAlive(pid));
      assert.equal((await lw.run("echo after")).stdout, "after\n");
      await lw.close();
    });

    test("close ends calls, and may be called again", async (stage) => {
      const lw = await stage.connect(UNCONFINED);
      const call = assert.rejects(lw.run("echo $$ > pid; exec sleep 600"), kind("closed"));
      const pid = await stage.pidIn("pid");
      await lw.close();
      await call;
      await lw.close();
      await assert.rejects(lw.run("true"), kind("closed"));
      await eventually("it was stopped", () => !isAlive(pid));
      if (lw.pid) assert.ok(!isAlive(lw.pid));
    });

    test("a program that dies fails every call, and its commands go on", async (stage) => {
      const lw = await stage.connect(UNCONFINED);
      const calls = [0, 1, 2].map((n) => lw.run(`echo $$ > pid${n}; exec sleep 600`));
      const failed = calls.map((call) => assert.rejects(call, ConnectionLost));
      const pids = await Promise.all([0, 1, 2].map((n) => stage.pidIn(`pid${n}`)));
      process.kill(stage.programPid(lw), "SIGKILL");
      await Promise.all(failed);
      await assert.rejects(lw.run("true"), ConnectionLost);
      await lw.close();
      if (overHttp) {
        stage.server = undefined;
        await stage.begin();
      }
      const again = await stage.connect(UNCONFINED);
      for (const task of await again.tasks()) await again.task(task.taskId).stop();
      assert.deepEqual(pids.filter(isAlive), []);
      await again.close();
    });

    if (overHttp) {
      test("a server that was started again is found again", async (stage) => {
        const lw = await stage.connect();
        assert.ok((await lw.run("true")).ok);
        await stage.end("SIGKILL");
        await stage.begin();
        assert.ok((await lw.run("true")).ok);
        await lw.close();
      });

      test("a wrong token and a missing server are told apart", async (stage) => {
        await (await stage.connect()).close();
        const { url } = stage;
        await assert.rejects(Legwork.open({ url, token: "wrong" }), kind("unauthorized"));
        await stage.end();
        await assert.rejects(Legwork.open({ url, token: stage.token }), ConnectionLost);
      });
    }
  });
}

describe("the program", () => {
  it("is given up when it says nothing, and killed when it does not end", async (context) => {
    const lw = await new Stage(context, false).connect();
    const pid = lw.pid ?? 0;
    [limits.silenceMs, farewell.ms] = [200, 200];
    process.kill(pid, "SIGSTOP");
    await assert.rejects(lw.run("true"), /nothing was heard/);
    await lw.close();
    [limits.silenceMs, farewell.ms] = [60_000, 10_000];
    assert.ok(!isAlive(pid));
  });

  it("says why it cannot work", async (context) => {
    const { workspace } = new Stage(context, false);
    await assert.rejects(Legwork.open({ program: "/no/such" }), kind("program_not_found"));
    await assert.rejects(Legwork.open({ workspace, state: "/proc/none" }), /\/proc\/none/);
    await assert.rejects(Legwork.open({ program: "/bin/true" }), ConnectionLost);
    await assert.rejects(Legwork.open({ url: "http://127.0.0.1:1" }), TypeError);
    await assert.rejects(Legwork.open({ token: "x" }), TypeError);
  });
});
