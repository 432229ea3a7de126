// An agent's question on a phone, and every answer.
import assert from "node:assert/strict";
import fs from "node:fs";
import path from "node:path";
import {
  PHONE,
  accessible,
  api,
  confirm,
  given,
  live,
  model,
  openAs,
  openByLink,
  picture,
  script,
  until,
} from "./browser.mjs";

const made = (name) => fs.existsSync(path.join(given.workspace, name));

await script(async () => {
  const phone = await openByLink({ size: PHONE, isTouch: true });
  const { page } = phone;
  await page.getByText("No command waits for an answer").waitFor();

  // It arrives by itself, and says which part it is about, why, and what the sandbox does.
  const dangerous = "make test && rm -rf build; touch /etc/legwork-was-here";
  const refused = model(dangerous);
  const card = page.getByRole("article");
  await card.waitFor();
  assert.equal(await page.title(), "(1) Legwork");
  await card.getByRole("heading", { name: "removes recursively or without asking" }).waitFor();
  assert.equal(await card.locator(".part.ask").first().innerText(), "rm -rf build");
  assert.equal(await card.locator(".part.allow").first().innerText(), "make test");
  const words = await card.innerText();
  for (const part of [
    "workspace-write, no network",
    "writing to /etc/legwork-was-here",
    "token agent",
  ]) {
    assert(words.includes(part), `${part} in ${words}`);
  }
  const width = await page.evaluate(() => document.documentElement.scrollWidth);
  assert(width <= PHONE.width, `nothing is wider than the phone: ${width}`);
  await accessible(phone, "a question on a phone");
  await picture(phone, "question-phone");

  // No, with a note, which the model reads.
  await card.getByRole("button", { name: "Deny with a note…" }).click();
  await card.getByRole("textbox").fill("use `make clean` instead");
  await card.getByRole("textbox").press("Enter");
  await card.waitFor({ state: "detached" });
  const read = await refused;
  assert(read.includes("the person says: use `make clean` instead"), read);
  assert.equal(await page.title(), "Legwork");

  // At a desk, with keys.
  const desk = await openAs("operator", { scheme: "dark" });
  await desk.page.getByText("No command waits for an answer").waitFor();
  // The model may hear of an answer before this page does.
  const answered = () => desk.page.getByText("No command waits for an answer").waitFor();
  fs.mkdirSync(path.join(given.workspace, "build"));
  const once = model("rm -rf build");
  await desk.page.locator(".question.takes-keys").waitFor();
  await accessible(desk, "a question in the dark");
  await picture(desk, "question-dark");
  await confirm(desk.page, "y");
  assert((await once).startsWith("Process exited with code 0"), await once);
  assert(!made("build"));
  await answered();

  // For the session: the same command is not asked about again.
  const session = model("rm -rf session-folder");
  await confirm(desk.page, "s");
  assert((await session).startsWith("Process exited with code 0"));
  await answered();
  assert((await model("rm -rf session-folder")).startsWith("Process exited with code 0"));

  // N asks for a note, in which keys are letters; Enter sends it.
  // It counts as soon as the question is drawn, and so does the first letter of the note.
  const third = model("rm -rf third");
  const focused = await desk.page.evaluate(() => {
    const drawn = (what) =>
      new Promise((done) => {
        const look = () => document.querySelector(what) && done();
        new MutationObserver(look).observe(document, {
          subtree: true,
          childList: true,
          attributes: true,
        });
      });
    const press = (key) => dispatchEvent(new KeyboardEvent("keydown", { key }));
    return drawn(".question.chosen").then(() => {
      const focused = drawn(".question textarea").then(() => document.activeElement.localName);
      press("N");
      return focused.then((name) => {
        // One that misses the note answers nothing.
        for (const key of ["y", "Enter"]) press(key);
        return name;
      });
    });
  });
  assert.equal(focused, "textarea");
  await desk.page.keyboard.type("a note with a, s and r");
  await desk.page.keyboard.press("Enter");
  assert((await third).includes("the person says: a note with a, s and r"), await third);

  await answered();

  // Nothing hides in a question, and nothing of it is taken as HTML.
  const hostile = "rm -rf x # \u202e\u200b<img src=x onerror=alert(1)>";
  const hidden = api("agent", "POST", "tasks", { cmd: hostile, login: false });
  await desk.page.getByRole("article").waitFor();
  const shown = await desk.page.locator(".command").innerText();
  assert(shown.includes("\\u{202e}\\u{200b}<img src=x onerror=alert(1)>"), shown);
  assert.equal(await desk.page.locator("img").count(), 0);

  // A viewer sees it and cannot answer; somebody's answer takes it away everywhere.
  const viewer = await openAs("viewer");
  await viewer.page.getByRole("article").waitFor();
  assert.equal(await viewer.page.getByRole("button", { name: "Allow once" }).count(), 0);
  const { result } = await api("operator", "GET", "questions");
  const { approval_id: id } = result.questions[0];
  await api("operator", "POST", `questions/${id}/answer`, { decision: "deny" });
  await viewer.page.getByText("No command waits for an answer").waitFor();
  await desk.page.getByText("No command waits for an answer").waitFor();
  assert.equal((await hidden).result.error.kind, "approval_refused");

  // A rule is shown as TOML before it is saved.
  const ruled = model("rm -rf ruled");
  await desk.page.getByText("The rule that can be saved").click();
  const rule = await desk.page.locator("details pre").innerText();
  assert(rule.includes(`args = [["-rf"], ["ruled"]]`), rule);
  await confirm(desk.page, "r");
  assert((await ruled).startsWith("Process exited with code 0"), await ruled);
  const saved = fs.readFileSync(path.join(given.state, "legwork/config.toml"), "utf8");
  assert(saved.includes(`["ruled"]`), saved);

  // Who looks at something else is notified, once for each question, if they allowed that.
  const away = await openAs("operator", {
    permissions: ["notifications"],
    prepare: () => {
      window.notified = [];
      window.Notification = class extends Notification {
        constructor(title, options) {
          super(title, options);
          window.notified.push(`${title}: ${options.body}`);
        }
      };
      // A browser without a screen shows every page.
      Object.defineProperty(Document.prototype, "hidden", { get: () => window.isAway === true });
    },
  });
  assert.equal(await away.page.getByRole("button", { name: "Notify me" }).count(), 0);
  const notified = () => away.page.evaluate(() => window.notified);
  await away.page.getByText("No command waits for an answer").waitFor();
  await away.page.evaluate(() => (window.isAway = true));
  const unseen = model("rm -rf unseen");
  await until("it is told", async () => (await notified()).length > 0);
  assert.deepEqual(await notified(), ["A command waits for your answer: rm -rf unseen"]);
  await confirm(desk.page, "y");
  assert((await unseen).startsWith("Process exited with code 0"), await unseen);
  assert.equal((await notified()).length, 1);

  // Who signs out sees nothing any more.
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Token").waitFor();
  await page.reload();
  await page.getByLabel("Token").waitFor();
  await accessible(phone, "signing in");
  await live(desk.page);
});
