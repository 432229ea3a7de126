// The server is killed in the middle of everything, and another one takes its place.
import assert from "node:assert/strict";
import fs from "node:fs";
import http from "node:http";
import net from "node:net";
import path from "node:path";
import {
  api,
  given,
  live,
  open,
  openByLink,
  restart,
  script,
  signIn,
  start,
  until,
} from "./browser.mjs";

const file = (name) => path.join(given.workspace, name);

await script(async () => {
  const desk = await openByLink();
  const { page } = desk;
  const log = page.getByRole("log");
  const has = (text) =>
    until(`the log has ${text}`, async () => (await log.innerText()).includes(text));
  const id = await start("echo before; while [ ! -e go ]; do sleep 0.05; done; echo after; cat");
  await page.goto(`${given.address}/#/task/${id}`);
  await has("before");
  // Another window stays on the list.
  const other = await open();
  await other.page.goto(`${given.address}/#/tasks`);
  await signIn(other.page, "operator");
  await other.page.getByRole("link", { name: "echo before" }).waitFor();

  await restart();

  // The new one does not know the session: whoever signs in again is where they were, and the task,
  // which nothing has happened to, goes on.
  await page.getByLabel("Token").waitFor();
  await signIn(page, "operator");
  await has("before");
  fs.writeFileSync(file("go"), "");
  await has("after");
  await page.locator(".status.completed").waitFor();
  await signIn(other.page, "operator");
  await other.page.locator(".status.completed").waitFor();
  const fresh = await start("echo a new one");
  await other.page.getByRole("link", { name: "echo a new one" }).waitFor();
  assert.equal((await api("operator", "GET", `tasks/${fresh}`)).status, 200);
  await live(page);

  // Behind a proxy, below a path: every address of the page is relative.
  const target = new URL(given.server);
  const asked = [];
  const below = (url) =>
    url.startsWith("/tools/legwork/") ? url.slice("/tools/legwork".length) : undefined;
  const proxy = http.createServer((request, response) => {
    asked.push(request.url);
    const inner = below(request.url);
    if (!inner) return void response.writeHead(404).end();
    const headers = { ...request.headers };
    const options = {
      host: target.hostname,
      port: target.port,
      method: request.method,
      path: inner,
      headers,
    };
    const passed = http.request(options, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    passed.on("error", () => response.destroy());
    response.on("close", () => passed.destroy());
    request.pipe(passed);
    return undefined;
  });
  // Terminals, too.
  proxy.on("upgrade", (request, socket) => {
    asked.push(request.url);
    const passed = net.connect(target.port, target.hostname, () => {
      const head = request.rawHeaders.map((it, place) => it + (place % 2 ? "\r\n" : ": ")).join("");
      passed.write(`GET ${below(request.url)} HTTP/1.1\r\n${head}\r\n`);
      passed.pipe(socket).pipe(passed);
    });
    passed.on("error", () => socket.destroy());
    socket.on("error", () => passed.destroy());
  });
  await new Promise((done) => proxy.listen(0, "127.0.0.1", done));
  const inner = await open();
  inner.origin = `http://127.0.0.1:${proxy.address().port}`;
  await inner.page.goto(`${inner.origin}/tools/legwork/#/tasks`);
  await signIn(inner.page, "operator");
  await inner.page.getByRole("link", { name: "echo a new one" }).click();
  await inner.page.getByRole("log").getByText("a new one").waitFor();
  const terminal = await start("printf 'name? '; read name; echo \"hello $name\"", { tty: true });
  await inner.page.goto(`${inner.origin}/tools/legwork/#/task/${terminal}`);
  const rows = inner.page.locator(".xterm-rows");
  await until("it asks", async () => (await rows.innerText()).includes("name?"));
  await inner.page.locator(".xterm-helper-textarea").focus();
  await inner.page.keyboard.type("you\n");
  await inner.page.getByText("hello you").waitFor();
  assert(
    asked.every((url) => url.startsWith("/tools/legwork/")),
    asked.join("\n"),
  );
  proxy.closeAllConnections();
  proxy.close();
});
