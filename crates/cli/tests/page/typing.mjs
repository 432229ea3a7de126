// What is typed at a question without the field of its note, at human pace, lets nothing happen.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import { accessible, allow, api, given, model, openAs, script } from "./browser.mjs";

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const made = (name) => fs.existsSync(path.join(given.workspace, name));
/** A person types a letter so often. */
const LETTER_MS = 110;

await script(async () => {
  const desk = await openAs("operator");
  const { page } = desk;
  const cards = page.locator(".question");
  const open = async () => (await api("operator", "GET", "questions")).result.questions;
  const asked = (...commands) => {
    for (const name of ["coverage", "dist", "third"])
      fs.mkdirSync(path.join(given.workspace, name), { recursive: true });
    return commands.map((command) => model(command));
  };
  const denyAll = async (answers) => {
    for (const { approval_id: id } of await open())
      await api("operator", "POST", `questions/${id}/answer`, { decision: "deny" });
    for (const answer of answers) assert((await answer).includes("refused"), await answer);
    await page.getByText("No command waits for an answer").waitFor();
  };
  const types = async (text) => {
    for (const letter of text) {
      await page.keyboard.press(letter === " " ? "Space" : letter);
      await pause(LETTER_MS);
    }
  };
  const nothingRan = (what) => {
    for (const name of ["coverage", "dist", "third"]) assert(made(name), `${what}: ${name}`);
  };

  // The choice of a question, a letter that denies nothing, and then the note.
  let answers = asked("rm -rf coverage", "rm -rf dist");
  await cards.nth(1).waitFor();
  await page.keyboard.press("j");
  await pause(250);
  await page.keyboard.press("d");
  await pause(300);
  await types("please use the release workflow");
  await page.keyboard.press("Enter");
  await page.getByText("Typing answers nothing").waitFor();
  assert.equal((await open()).length, 2);
  nothingRan("a note behind d");
  await accessible(desk, "the hint about typing");
  await denyAll(answers);

  // A deny and its reason: the question that moves up gets nothing of it.
  answers = asked("rm -rf coverage", "rm -rf dist", "rm -rf third");
  await cards.nth(2).waitFor();
  // It is not what was typed before.
  await page.locator(".question.takes-keys").waitFor();
  await types("no, stay away: use yarn, not that");
  await page.keyboard.press("Enter");
  assert.equal((await open()).length, 2, "one question is denied");
  nothingRan("a reason behind n");
  await denyAll(answers);

  // As soon as it appears, letters with their Enter behind them, and the button with the focus.
  answers = asked("rm -rf coverage");
  await cards.first().waitFor();
  await page.getByRole("button", { name: "Allow once" }).first().focus();
  await types("yes sir ");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Space");
  await page.evaluate(() => dispatchEvent(new ClipboardEvent("paste")));
  await page.keyboard.press("Enter");
  nothingRan("words at a button");
  assert.equal((await open()).length, 1);

  // A letter, and Enter for another question than the one that was shown.
  await page.locator(".question.takes-keys").waitFor();
  await page.keyboard.press("y");
  await page.locator(".said.armed").waitFor();
  await api("operator", "POST", `questions/${(await open())[0].approval_id}/answer`, {
    decision: "deny",
  });
  const other = asked("rm -rf dist");
  await page.locator(".question", { hasText: "rm -rf dist" }).waitFor();
  await page.keyboard.press("Enter");
  nothingRan("Enter for another question");
  assert.equal((await open()).length, 1);
  await denyAll([...answers, ...other]);

  // A click on what has just come, and the second one of a double click, are for nothing.
  answers = asked("rm -rf coverage");
  await page.evaluate(
    () =>
      new Promise((done) => {
        new MutationObserver(() => {
          const button = document.querySelector('.question [data-letter="y"]');
          if (!button) return;
          button.dispatchEvent(new MouseEvent("click", { bubbles: true, detail: 1 }));
          done();
        }).observe(document.body, { subtree: true, childList: true });
      }),
  );
  await page.getByText("has just appeared or moved").waitFor();
  nothingRan("a click on what has just come");
  await page
    .locator('[data-letter="y"][data-settled]')
    .dispatchEvent("click", { bubbles: true, detail: 2 });
  nothingRan("a double click");
  await allow(page, "Allow once");
  assert((await answers[0]).startsWith("Process exited with code 0"), await answers[0]);
  assert(!made("coverage"));
});
