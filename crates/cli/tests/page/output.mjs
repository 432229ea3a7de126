// The output of tasks: live, with colours, hostile, and more than anybody can read.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { accessible, api, frames, given, openByLink, script, start, until } from "./browser.mjs";

const file = (name) => path.join(given.workspace, name);

await script(async () => {
  const desk = await openByLink();
  const { page } = desk;
  const log = page.getByRole("log");
  const show = async (id) => {
    await page.goto(`${given.address}/#/task/${id}`);
    await page.locator(".id", { hasText: id }).waitFor();
  };
  const has = (text) =>
    until(`the log has ${text}`, async () => (await log.innerText()).includes(text));

  // Live: what is printed appears, in order, with its colours, also half a line; input is sent.
  const live = await start(
    "printf '\\033[31mred\\033[0m and \\033[1;38;2;0;120;0mgreen\\033[0m\\n'; echo to stderr >&2; " +
      "printf 'name? '; read name; echo \"hello $name\"; while [ ! -e go ]; do sleep 0.05; done; exit 3",
    { accepts_input: true },
  );
  await show(live);
  await has("name?");
  assert.equal(await log.locator(".f1").innerText(), "red");
  const green = await log
    .locator("span", { hasText: "green" })
    .evaluate((it) => getComputedStyle(it).color);
  assert.equal(green, "rgb(0, 120, 0)");
  assert.equal((await log.locator(".stderr").innerText()).trim(), "to stderr");
  await page.locator(".facts").getByText(/MiB now$/).waitFor();
  await page.getByLabel(/Input:|waits for input/).fill("<b>you</b>");
  await page.getByRole("button", { name: "Send line" }).click();
  await has("hello <b>you</b>");
  await page.getByLabel("Streams").selectOption("stderr");
  assert.equal((await log.innerText()).trim(), "to stderr");
  await page.getByLabel("Streams").selectOption("both");
  fs.writeFileSync(file("go"), "");
  await page.locator(".status.failed", { hasText: "exit 3" }).waitFor();
  const used = page.locator(".facts");
  await used.getByText(/^\d.* \(\d.* user, \d.* system\)$/).waitFor();
  await used.getByText(/^\d.* MiB at most in one process$/).waitFor();
  await page.locator(".timeline").getByText("allowed").waitFor();
  const begun = page.waitForEvent("download");
  await page.getByRole("button", { name: /^stdout/ }).click();
  const download = await begun;
  assert.equal(download.suggestedFilename(), `${live}.stdout`);
  const downloaded = fs.readFileSync(await download.path(), "utf8");
  assert(downloaded.startsWith("\u001b[31mred"), downloaded);
  await accessible(desk, "a task");

  // What a task uses is read again while it is looked at, also if it prints nothing.
  await show(await start("while [ ! -e burnt ]; do :; done"));
  const cpu = page.locator(".facts > div", { hasText: "CPU time" }).locator("dd");
  await cpu.waitFor();
  let last = await cpu.innerText();
  for (const turn of ["once", "twice"]) {
    await until(`its CPU time grows ${turn}`, async () => (await cpu.innerText()) !== last);
    last = await cpu.innerText();
  }
  fs.writeFileSync(file("burnt"), "");
  await page.locator(".status.completed").waitFor();

  // Hostile: HTML, escape sequences, text that runs backwards, what has no width, half a sequence.
  const hostile = [
    "<script>alert(1)</script><img src=x onerror=alert(2)>",
    "back\u202ewards\u2066\u2069 zero\u200bwidth\ufeff \u{e0041}",
    "\u001b]0;title\u0007\u001b]52;c;ZXZpbA==\u0007\u001b[2J\u001b[Hstill here\u001bP1$r\u001b\\",
    "\u001b]8;;javascript:alert(3)\u0007click\u001b]8;;\u0007",
    "progress 1%\rprogress 100%",
    "\u009b31mC1 red\u0000\u0007\b\b bell",
    `&lt;entity&gt; \u001b[38;5;196m256\u001b[0m`,
    "\u001b[31",
  ].join("\n");
  fs.writeFileSync(file("hostile"), hostile);
  await show(await start("cat hostile"));
  await has("&lt;entity&gt; 256");
  const text = await log.innerText();
  assert(text.includes("<script>alert(1)</script><img src=x onerror=alert(2)>"), text);
  assert(
    text.includes("back\\u{202e}wards\\u{2066}\\u{2069} zero\\u{200b}width\\u{feff} \\u{e0041}"),
    text,
  );
  assert(text.includes("still here") && text.includes("click"), text);
  assert(text.includes("progress 100%") && !text.includes("progress 1%"), text);
  assert.equal(await page.title(), "Legwork");
  assert.equal(await page.locator("img, .log a, .log script").count(), 0);

  // A megabyte in one line, and the page goes on.
  await show(await start("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo after"));
  await has("after");
  await has("more characters in this line");
  const long = await log.evaluate((it) => it.textContent.length);
  assert(long < 20_000, `${long} characters are in the document`);

  // 100 MB, as fast as they come: the newest is shown, what is left out is counted.
  await frames(desk, "a task that prints 100 MB", async () => {
    const much = await start(
      "yes 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde | head -c 100000000; echo the end",
    );
    await show(much);
    await page.locator(".status.completed").waitFor();
  });
  await has("the end");
  const counted = await log.innerText();
  assert(/\d MiB of the output are not shown here/.test(counted), counted.slice(0, 200));
  const lines = await log.evaluate((it) => it.querySelectorAll(".block > div").length);
  assert(lines <= 6100, `${lines} lines are in the document`);

  // Stopping asks first.
  const endless = await start("echo begun; sleep 600");
  await show(endless);
  await has("begun");
  await page.getByRole("button", { name: "Stop…" }).click();
  await page.getByRole("button", { name: "Keep it" }).click();
  await page.getByRole("button", { name: "Stop…" }).click();
  await page.getByRole("button", { name: "Stop it" }).click();
  await page.locator(".status.cancelled").waitFor();
  const { result } = await api("operator", "GET", `tasks/${endless}`);
  assert.equal(result.record.status, "cancelled");
});
