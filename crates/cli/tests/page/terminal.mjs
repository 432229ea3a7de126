// vim inside a task, edited from the page: keys, colours, arrows, a long paste, Ctrl-C, the size.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import {
  PHONE,
  accessible,
  api,
  given,
  openAs,
  openByLink,
  picture,
  script,
  start,
  until,
} from "./browser.mjs";

const file = (name) => path.join(given.workspace, name);

/** What the terminal shows, as its rows have it. */
const screen = (page) => page.locator(".xterm-rows").innerText();

const shows = (page, text) =>
  until(`the screen has ${text}`, async () => (await screen(page)).includes(text));

await script(async () => {
  const PASTED = Array.from({ length: 200 }, (_, line) => `line ${line} ${"x".repeat(42)}`).join(
    "\n",
  );
  assert(PASTED.length > 10_000);
  fs.writeFileSync(file("code.c"), "int main(void) { return 0; } // a comment\n");
  const desk = await openByLink({ scheme: "dark" });
  const { page } = desk;
  const scripts = [];
  page.on("request", (request) => scripts.push(new URL(request.url()).pathname));

  const vim = "vim -u NONE -i NONE -N -n +'syntax on' +'set t_Co=256 bg=dark mouse=' code.c";
  const id = await start(vim, { tty: true });
  await page.goto(`${given.address}/#/task/${id}`);
  await page.locator(".xterm-rows").waitFor();
  await shows(page, "int main(void)");
  assert(scripts.includes("/terminal.js"), "the terminal is loaded when it is needed");

  // Colours: a keyword and a comment look different from each other and from the rest.
  // Where the font is of uneven width, each character has an element of its own.
  const colour = (text) =>
    page.locator(".xterm-rows > div", { hasText: text }).evaluate((row, text) => {
      let left = row.textContent.indexOf(text);
      const span = [...row.children].find((it) => (left -= it.textContent.length) < 0);
      return getComputedStyle(span).color;
    }, text);
  const colours = new Set([await colour("return"), await colour("// a comment")]);
  assert.equal(colours.size, 2, [...colours].join());

  // Arrow keys and typing.
  await page.locator(".xterm-helper-textarea").focus();
  await page.keyboard.type("o");
  await page.keyboard.type("second");
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.type("--");
  await page.keyboard.press("Escape");
  await shows(page, "seco--nd");

  // The size: what fits into the window, and vim draws itself anew.
  await page.getByRole("button", { name: "Fit to window" }).click();
  const size = async () =>
    (await page.locator(".bar .faint").first().innerText()).split(" × ").map(Number);
  const [cols, rows] = await until("another size", async () => {
    const found = await size();
    return found[0] !== 80 && found;
  });
  await page.keyboard.type(":put =&columns.'x'.&lines");
  await page.keyboard.press("Enter");
  await shows(page, `${cols}x${rows}`);
  await page.setViewportSize({ width: 900, height: 700 });
  const narrower = await until("a smaller size", async () => {
    const found = await size();
    return found[0] < cols && found;
  });
  await page.keyboard.type(":put =&columns.'x'.&lines");
  await page.keyboard.press("Enter");
  await shows(page, `${narrower[0]}x${narrower[1]}`);
  await picture(desk, "terminal-dark");
  await accessible(desk, "a terminal");

  // A paste of 10 KB, in one piece.
  await page.keyboard.type(":set paste");
  await page.keyboard.press("Enter");
  await page.keyboard.type("Go");
  await page.evaluate((text) => navigator.clipboard.writeText(text), PASTED);
  await page.getByRole("button", { name: "Paste" }).click();
  await shows(page, "line 199 ");
  // Ctrl-C ends the insertion, as a key and as a button for phones.
  await page.keyboard.press("Control+c");
  // Until it has heard that, vim drops what is typed.
  await until("the insertion is over", async () => !(await screen(page)).includes("-- INSERT"));
  await page.keyboard.type(":w");
  await page.keyboard.press("Enter");
  const written = await until("vim has written", () => {
    const text = fs.readFileSync(file("code.c"), "utf8");
    return text.includes("line 199") && text;
  });
  assert(written.includes(PASTED), "every byte of it");
  assert(written.includes("\nseco--nd\n"), written.slice(0, 80));

  // A viewer looks on, and cannot type.
  const viewer = await openAs("viewer", { size: PHONE });
  await viewer.page.goto(`${given.address}/#/task/${id}`);
  await shows(viewer.page, "line 199");
  await viewer.page.getByText("You can look, but not type.").waitFor();
  assert.equal(await viewer.page.getByRole("button", { name: "Control C" }).count(), 0);
  const width = await viewer.page.evaluate(() => document.documentElement.scrollWidth);
  assert(width <= PHONE.width, `nothing is wider than the phone: ${width}`);

  // The end of the task is seen: its last screen, and no terminal any more.
  await page.keyboard.type(":q!");
  await page.keyboard.press("Enter");
  await page.locator(".status.completed").waitFor();
  await page.locator(".xterm").waitFor({ state: "detached" });
  await page.getByLabel("The last screen of its terminal").waitFor();
  await viewer.page.locator(".status.completed").waitFor();

  // Ctrl-C of the row of keys interrupts a command.
  const sleeping = await start("echo begun; sleep 600", { tty: true });
  await page.goto(`${given.address}/#/task/${sleeping}`);
  await shows(page, "begun");
  await page.getByRole("button", { name: "Control C" }).click();
  await page.locator(".status.failed").waitFor();

  // What a terminal prints to harm its viewer: titles, clipboard, links, questions, HTML.
  const hostile =
    "printf '\\033]0;evil\\007\\033]52;c;ZXZpbA==\\007\\033]8;;https://example.com\\007link\\033]8;;\\007" +
    "\\033[c\\033[6n<img src=x onerror=alert(1)>\\342\\200\\256 done\\n'; sleep 600";
  const evil = await start(hostile, { tty: true });
  await page.goto(`${given.address}/#/task/${evil}`);
  await shows(page, "<img src=x onerror=alert(1)>");
  assert.equal(await page.title(), "Legwork");
  assert.equal(await page.locator("img").count(), 0);
  assert.notEqual(await page.evaluate(() => navigator.clipboard.readText()), "evil");
  await page.getByText("link").first().click();
  assert.equal(desk.context.pages().length, 1, "a link leads nowhere");
  await page.getByRole("button", { name: "Stop…" }).click();
  await page.getByRole("button", { name: "Stop it" }).click();
  await page.locator(".status.cancelled").waitFor();
  assert.equal((await api("operator", "GET", "tasks?status=running")).result.total, 0);
});
