// What the scripts that drive the page share: a browser, windows in it, and calls to the API.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import fs from "node:fs";
import path from "node:path";
import readline from "node:readline";
import { chromium } from "playwright-core";

export const given = JSON.parse(process.env.LEGWORK_PAGE_TEST);

/** How long something may take before the test has failed; nothing takes so long if all is well. */
export const PATIENCE_MS = 60_000;
/** How long a whole script may take. */
const END_MS = 400_000;

const axeSource = fs.readFileSync(
  createRequire(import.meta.url).resolve("axe-core/axe.min.js"),
  "utf8",
);

export const DESKTOP = { width: 1100, height: 760 };
export const PHONE = { width: 390, height: 780 };

let browser;
const windows = [];

/** Runs a script to its end, and tells what went wrong in any window. */
export async function script(body) {
  let failure;
  try {
    browser = await chromium.launch({
      executablePath: given.chromium,
      // Where the tests run as root, it would not start otherwise.
      args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
    });
    const late = new Promise((_, fail) =>
      setTimeout(() => fail(new Error("the script did not come to its end")), END_MS).unref(),
    );
    await Promise.race([body(), late]);
    for (const { complaints } of windows) assert.deepEqual(complaints, []);
  } catch (error) {
    failure = error;
    for (const { page, complaints } of windows) {
      console.error("complaints:", complaints);
      if (!page.isClosed())
        console.error(
          await page
            .locator("body")
            .innerText()
            .catch(() => ""),
        );
      const at = path.join(given.state, "failure.png");
      await page.screenshot({ path: process.env.LEGWORK_FAILURE_PICTURE ?? at }).catch(() => {});
    }
  }
  // One that does not close ends with this script: its pipe breaks.
  const closed = new Promise((done) => setTimeout(done, PATIENCE_MS).unref());
  await Promise.race([browser?.close(), closed]);
  if (failure) {
    console.error(failure);
    process.exit(1);
  }
  console.log("all well");
  process.exit(0);
}

/** A window of its own, with its own cookies. */
export async function open(options = {}) {
  const { size = DESKTOP, scheme = "light", isTouch = false, permissions = [], prepare } = options;
  const context = await browser.newContext({
    viewport: size,
    colorScheme: scheme,
    hasTouch: isTouch,
    deviceScaleFactor: 1,
    permissions: ["clipboard-read", "clipboard-write", ...permissions],
  });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const window = { page, context, complaints: [], isOffline: false, bytes: 0 };
  page.on("console", (message) => {
    // A server that is away is complained about by the browser itself.
    const isNetwork = /Failed to load resource|WebSocket connection|ERR_/.test(message.text());
    if (message.type() === "error" && !isNetwork) window.complaints.push(message.text());
  });
  page.on("pageerror", (error) => window.complaints.push(String(error)));
  page.on("dialog", (dialog) => {
    window.complaints.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  page.on("request", (request) => {
    const url = new URL(request.url());
    const own = new URL(window.origin ?? given.address);
    // No request to any other host; images of our own are data.
    if (url.protocol !== "data:" && url.host !== own.host) {
      window.complaints.push(`request to ${url}`);
    }
  });
  await page.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`policy violated: ${event.violatedDirective} ${event.sourceFile}`);
    });
  });
  if (prepare) await page.addInitScript(prepare);
  windows.push(window);
  return window;
}

/** Opens the page at the sign-in link. */
export async function openByLink(options) {
  const window = await open(options);
  await window.page.goto(given.link);
  await live(window.page);
  assert(!window.page.url().includes("code="), "the code does not stay in the address");
  return window;
}

/** Opens the page and signs in with the token of a role. */
export async function openAs(role, options) {
  const window = await open(options);
  await window.page.goto(`${given.address}/`);
  await signIn(window.page, role);
  return window;
}

export async function signIn(page, role) {
  await page.getByLabel("Token").fill(given.tokens[role]);
  await page.getByRole("button", { name: "Sign in" }).click();
  await live(page);
}

/** Waits until the page hears what happens. */
export const live = (page) => page.locator(".link.live").waitFor();

/** Lets axe look: nothing serious. */
export async function accessible({ page }, what) {
  if (!(await page.evaluate(() => "axe" in window))) await page.evaluate(axeSource);
  const { violations } = await page.evaluate(() => window.axe.run());
  const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  const told = serious.map(({ id, nodes }) => `${id}: ${nodes.map((it) => it.html).join(" | ")}`);
  assert.deepEqual(told, [], what);
}

/** The API, as a role. */
export async function api(role, method, name, body) {
  const response = await fetch(`${given.server}/api/v1/${name}`, {
    method,
    headers: { Authorization: `Bearer ${given.tokens[role]}`, "Content-Type": "application/json" },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  return { status: response.status, result: await response.json() };
}

/** Calls a tool as a model does, over MCP: the text that the model reads. */
export async function model(cmd, more = {}) {
  const meta = {
    "Content-Type": "application/json",
    Accept: "application/json, text/event-stream",
  };
  const headers = { ...meta, Authorization: `Bearer ${given.tokens.agent}` };
  const send = async (body, session) => {
    const response = await fetch(`${given.server}/mcp`, {
      method: "POST",
      headers: session ? { ...headers, "Mcp-Session-Id": session } : headers,
      body: JSON.stringify({ jsonrpc: "2.0", ...body }),
      // An answer that is never heard fails where it is waited for.
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    const text = await response.text();
    const lines = text.split("\n").filter((line) => line.startsWith("data: {"));
    const messages = lines.map((line) => JSON.parse(line.slice(6)));
    return { session: response.headers.get("mcp-session-id"), messages, text };
  };
  const clientInfo = { name: "model", version: "1" };
  const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo };
  const { session } = await send({ id: 1, method: "initialize", params });
  await send({ method: "notifications/initialized" }, session);
  const call = { name: "ExecCommand", arguments: { cmd, login: false, ...more } };
  const answered = await send({ id: 2, method: "tools/call", params: call }, session);
  const result = answered.messages.find((message) => message.id === 2)?.result;
  assert(result, answered.text);
  return result.content[0].text;
}

/** Starts a command as a task, and returns its id. */
export async function start(cmd, more = {}, role = "operator") {
  const input = { cmd, login: false, yield_time_ms: 0, duplicate_policy: "start_new", ...more };
  const { result } = await api(role, "POST", "tasks", input);
  const id = result.task_handle?.task_id ?? result.task_id;
  assert(id, JSON.stringify(result));
  return id;
}

/** Clicks a button that lets something happen, once it has stood still. */
export async function allow(scope, name) {
  const button = scope.getByRole("button", { name });
  await button.scrollIntoViewIfNeeded();
  // The page hears of that with the next frame.
  await button.evaluate(
    () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
  );
  await button.and(scope.locator("[data-settled]")).click();
}

/** Gives an answer that takes a letter and then Enter. */
export async function confirm(page, letter) {
  await page.locator(".question.takes-keys").waitFor();
  await page.keyboard.press(letter);
  await page.locator(".said.armed").waitFor();
  await page.keyboard.press("Enter");
}

/** Waits until something holds. */
export async function until(what, holds) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await holds();
    if (found) return found;
    assert(Date.now() < end, `never: ${what}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** Kills the server, and starts another one: the link of that. */
export async function restart() {
  const lines = readline.createInterface({ input: process.stdin });
  const answer = new Promise((done) => lines.once("line", done));
  console.log("@restart");
  const link = await answer;
  lines.close();
  return link;
}

/** Takes a picture for the book, where pictures are wanted. */
export async function picture({ page }, name) {
  if (!given.pictures) return;
  const file = path.join(given.pictures, `${name}.png`);
  await page.screenshot({ path: file });
  assert(fs.statSync(file).size < 200_000, `${name} is too big`);
}

/** Measures how long frames take while something is done. */
export async function frames({ page }, what, body) {
  await page.evaluate(() => {
    const times = [];
    let last = performance.now();
    const step = (now) => {
      times.push(now - last);
      last = now;
      if (window.measured === times) requestAnimationFrame(step);
    };
    window.measured = times;
    requestAnimationFrame(step);
  });
  await body();
  const times = await page.evaluate(() => {
    const { measured } = window;
    window.measured = undefined;
    return measured;
  });
  times.sort((a, b) => a - b);
  const at = (part) => (times[Math.floor((times.length - 1) * part)] ?? 0).toFixed(0);
  console.log(
    `frames, ${what}: ${times.length}, p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, worst ${at(1)} ms`,
  );
}
