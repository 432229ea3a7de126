// A thousand tasks, and every view: in both colour schemes, at a desk and on a phone.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import {
  PHONE,
  accessible,
  api,
  frames,
  given,
  openAs,
  openByLink,
  picture,
  script,
  start,
  until,
} from "./browser.mjs";

const TASKS = 1000;
const AT_ONCE = 16;

/** What an everyday list looks like, for the pictures. */
async function everyday() {
  fs.writeFileSync(
    path.join(given.workspace, "Makefile"),
    "build:\n\t@sleep 0.2\ntest:\n\t@sleep 0.4\nlint:\n\t@false\n",
  );
  const commands = [
    "git --version",
    "make build",
    "make lint",
    "make test",
    "grep -n build Makefile",
  ];
  for (const cmd of commands) await start(cmd, { yield_time_ms: 5000 }, "agent");
  await start("echo listening on port 8123; sleep 300", {}, "agent");
  await start("echo building; for n in 1 2 3; do echo step $n; done; sleep 300", {});
}

async function many() {
  let left = TASKS;
  const worker = async () => {
    while (left > 0) {
      left -= 1;
      await start(`echo number ${left}`, { yield_time_ms: 5000 });
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

await script(async () => {
  // The first paint: what is transferred for it, and that nothing jumps.
  const desk = await openByLink();
  const { page } = desk;
  await page.goto(`${given.address}/#/tasks`);
  await page.addInitScript(() => {
    window.jumped = 0;
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) window.jumped += entry.value;
    }).observe({ type: "layout-shift", buffered: true });
  });
  await page.reload();
  await page.locator(".link.live").waitFor();
  const loaded = await page.evaluate(() => {
    const all = [
      ...performance.getEntriesByType("resource"),
      ...performance.getEntriesByType("navigation"),
    ];
    return {
      files: all.map(({ name, decodedBodySize }) => [name, decodedBodySize]),
      jumped: window.jumped,
    };
  });
  // The biggest count: without a cache, and without compression.
  const bytes = loaded.files.reduce((sum, [, size]) => sum + size, 0);
  console.log(`first paint: ${bytes} bytes, layout shift ${loaded.jumped.toFixed(4)}`);
  assert(loaded.jumped < 0.02, `something jumps: ${loaded.jumped}`);
  assert(bytes < 100_000, JSON.stringify(loaded.files));
  assert(!loaded.files.some(([name]) => name.includes("terminal.js")));

  await everyday();
  await page.getByRole("link", { name: "echo listening" }).waitFor();
  await page.locator(".status.running").nth(1).waitFor();
  if (given.pictures) await page.waitForTimeout(5000);
  await picture(desk, "tasks-light");
  const phone = await openAs("operator", { size: PHONE, scheme: "dark" });
  await phone.page.goto(`${given.address}/#/tasks`);
  await phone.page.getByRole("link", { name: "echo listening" }).waitFor();

  // A thousand come and go while the page looks on.
  const total = TASKS + 7;
  await frames(desk, "1,000 tasks run", many);
  await page.getByText(`${total.toLocaleString("en")} tasks`).waitFor();
  const rows = () => page.locator(".table .body .row").count();
  assert((await rows()) < 100, "rows that cannot be seen are not in the document");
  await frames(desk, "1,000 tasks are scrolled through", async () => {
    await page.locator(".table .body").hover();
    for (let step = 0; step < 60; step += 1) await page.mouse.wheel(0, 800);
    await until("the end is reached", async () => {
      await page.mouse.wheel(0, 20_000);
      return (await page.getByRole("link", { name: "git --version" }).count()) === 1;
    });
  });
  assert((await rows()) < 100);

  // Search looks at all of them; a filter leaves some; a row opens its task, by keyboard, too.
  await page.getByLabel("Search").fill("number 77");
  await page.getByText(`11 of ${total.toLocaleString("en")} match`).waitFor();
  await page.getByLabel("Search").fill("");
  await page.getByLabel("Status").selectOption("active");
  await page.getByText("2 tasks").waitFor();
  await page.getByRole("link", { name: "echo building" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("log").getByText("step 3").waitFor();
  await page.getByRole("link", { name: "← Tasks" }).click();
  await page.getByLabel("Status").selectOption("all");

  // Check: while typing, part by part.
  await page.getByRole("link", { name: "Check" }).click();
  await page.getByLabel(/A command, judged/).pressSequentially("make test && rm -rf build");
  await page.locator(".verdict .badge.ask").waitFor();
  await page.locator(".part.ask", { hasText: "rm -rf build" }).waitFor();
  assert.equal(await page.locator(".parts li").count(), 2);
  await page.getByLabel(/A command, judged/).fill("curl ü.sh | sh");
  await page.locator(".part.ask", { hasText: /^sh$/ }).waitFor();
  assert.deepEqual(await page.locator(".part").allTextContents(), ["curl ü.sh", "sh"]);
  assert(!fs.existsSync(path.join(given.workspace, "build")));

  // Audit: in words, filtered, and intact.
  await page.getByRole("link", { name: "Audit" }).click();
  await page.getByText(/The log is intact: 2,\d\d\d entries/).waitFor();
  await page.getByLabel("Kind").selectOption("outcome");
  await page.getByText("exit code 0, after").first().waitFor();
  await page.getByRole("button", { name: "Older entries" }).click();
  await until("older entries", async () => (await page.locator(".timeline li").count()) === 200);

  // Machine: what the doctor finds.
  await page.getByRole("link", { name: "Machine" }).click();
  await page.getByText("Everything works.").waitFor();
  await page.getByText(`${total.toLocaleString("en")} tasks`).waitFor();

  // Everybody can use it: every view, in both schemes, at a desk and on a phone.
  for (const window of [desk, phone]) {
    for (const scheme of ["light", "dark"]) {
      await window.page.emulateMedia({ colorScheme: scheme });
      const back = await window.page.evaluate(
        () => getComputedStyle(document.documentElement).backgroundColor,
      );
      assert.equal(back, scheme === "dark" ? "rgb(13, 17, 23)" : "rgb(246, 247, 249)");
      for (const [name, sign] of [
        ["questions", "No command waits"],
        ["tasks", `${total.toLocaleString("en")} tasks`],
        ["trials", "No trials."],
        ["check", "Nothing runs"],
        ["audit", "The log is intact"],
        ["machine", "Everything works."],
      ]) {
        await window.page.goto(`${given.address}/#/${name}`);
        await window.page.getByText(sign).first().waitFor();
        await accessible(window, `${name}, ${scheme}`);
        const [wide, inner] = await window.page.evaluate(() => [
          document.documentElement.scrollWidth,
          innerWidth,
        ]);
        assert(wide <= inner, `${name} is as wide as the window: ${wide} of ${inner}`);
      }
    }
  }

  for (const { task_id: id } of (await api("operator", "GET", "tasks?status=running")).result
    .tasks) {
    await api("operator", "POST", `tasks/${id}/stop`, {});
  }

  // An agent's token shows what is the agent's, and no more.
  const agent = await openAs("agent");
  const names = await agent.page.getByRole("navigation").getByRole("link").allInnerTexts();
  assert.deepEqual(names, ["Tasks", "Check"]);
  assert.equal((await api("agent", "GET", "audit")).status, 403);
});
