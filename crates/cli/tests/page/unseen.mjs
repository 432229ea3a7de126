// Keys on the page answer the question that is on the screen and no other one, a click counts on a
// button that stood still before it was pressed, and the answer that was given stays to be read.
import assert from "node:assert/strict";
import {
  DESKTOP,
  PHONE,
  accessible,
  allow,
  api,
  confirm,
  openAs,
  script,
  until,
} from "./browser.mjs";

await script(async () => {
  const open = async () => (await api("operator", "GET", "questions")).result.questions;
  const commands = ["coverage", "dist", "build", "out"].map((name) => `rm -rf ${name}`);
  // As long as this one is open, callers wait.
  const desk = await openAs("operator");
  const answers = [];
  for (const command of commands) {
    answers.push(api("agent", "POST", "tasks", { cmd: command, login: false }));
    await until(command, async () => (await open()).length === answers.length);
  }

  for (const size of [DESKTOP, PHONE]) {
    const window = await openAs("operator", { size });
    const { page } = window;
    const first = page.locator(".question").first();
    const said = first.locator(".said");
    const isSeen = (what) =>
      what.evaluate((it) => {
        const { top, bottom } = it.getBoundingClientRect();
        return top >= 0 && bottom <= innerHeight;
      });
    const away = async () => {
      await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
      await until("it is off the screen", async () => !(await isSeen(said)));
    };
    await page.locator(".question.takes-keys").waitFor();

    // A letter that allows, and one that denies, bring it back; nothing is answered.
    for (const [letter, behind] of [["y", "Enter"], ["n"], ["x"]]) {
      await away();
      await page.locator(".question.takes-keys").waitFor({ state: "detached" });
      await page.keyboard.press(letter);
      await page.getByText("The question was not on the screen").waitFor();
      if (behind) await page.keyboard.press(behind);
      assert(await isSeen(said), `${letter}: the hint is on the screen`);
      assert(await isSeen(first.locator(".command")), `${letter}: so is the command`);
      assert.equal((await open()).length, 4, letter);
      // Now they count again.
      await page.locator(".question.takes-keys").waitFor();
    }
    await accessible(window, "a question that was off the screen");

    // Who armed it before it went off the screen confirms nothing.
    await page.keyboard.press("y");
    await page.locator(".said.armed").waitFor();
    await away();
    await page.keyboard.press("Enter");
    await page.getByText("The question was not on the screen").waitFor();
    assert.equal((await open()).length, 4);

    // The next one is brought to the screen with its answers.
    await page.locator(".question.takes-keys").waitFor();
    await page.keyboard.press("j");
    const chosen = page.locator(".question.takes-keys", { hasText: commands[1] });
    await chosen.waitFor();
    assert(await isSeen(chosen.locator(".command")));
    assert(await isSeen(chosen.locator(".said")));
    await page.context().close();
  }

  // What was answered stays to be read, the last one first.
  const { page } = desk;
  await page.locator(".question.takes-keys").waitFor();
  await page.keyboard.press("n");
  await page.getByText(`Denied: ${commands[0]}`).waitFor();
  await page.locator(".question.takes-keys", { hasText: commands[1] }).waitFor();
  await confirm(page, "y");
  const last = page.locator(".last-answer");
  await last.getByText(`Allowed once: ${commands[1]}`).waitFor();
  await last.getByRole("link", { name: "audit log" }).waitFor();
  await page.getByText("Earlier answers").click();
  await page.getByText(`Denied: ${commands[0]}`).waitFor();
  assert.equal((await answers[0]).result.error.kind, "approval_refused");
  assert.equal((await answers[1]).result.exit_status, 0);

  // A press that began before the button stood still is for nothing, however long it takes.
  const card = page.locator(".question", { hasText: commands[2] });
  const button = card.locator('[data-letter="y"]');
  await button.evaluate((it) => {
    // As if it had just come.
    window.dispatchEvent(new Event("focus"));
    it.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
  });
  await button.and(page.locator("[data-settled]")).dispatchEvent("click", { detail: 1 });
  await page.getByText("has just appeared or moved").waitFor();
  assert.equal((await open()).length, 2);
  // One that began on it counts.
  await allow(card, "Allow once");
  await last.getByText(`Allowed once: ${commands[2]}`).waitFor();
  assert.equal((await answers[2]).result.exit_status, 0);
  await page.locator(".question.takes-keys", { hasText: commands[3] }).waitFor();
  await page.keyboard.press("n");
  assert.equal((await answers[3]).result.error.kind, "approval_refused");
});
