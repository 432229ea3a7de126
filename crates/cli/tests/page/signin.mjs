// Who is signed in: in this tab, in another one, no longer, and why not.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { given, live, open, openAs, openByLink, script, signIn } from "./browser.mjs";

const kept = (page) => page.evaluate(() => JSON.stringify({ ...sessionStorage }));

await script(async () => {
  const desk = await openByLink();
  const { page } = desk;
  assert.deepEqual(await desk.context.cookies(), []);

  // Neither a reload nor a second tab has to sign in; nor does the link, though it was used.
  await page.reload();
  await live(page);
  const second = await desk.context.newPage();
  await second.goto(given.link);
  await live(second);
  assert(!second.url().includes("code="), second.url());

  // Signing out ends both, with nothing left. A tab that signs in brings the other one along.
  await second.getByRole("button", { name: "Sign out" }).click();
  for (const tab of [second, page]) {
    await tab.getByLabel("Token").waitFor();
    assert.equal(await kept(tab), "{}");
  }
  await page.getByText("the session has ended: sign in again").waitFor();
  await signIn(second, "operator");
  await live(page);

  // Somebody else, with the link that was used.
  const other = await open();
  await other.page.goto(given.link);
  await other.page.getByText("the code was used already").waitFor();
  await other.page.getByLabel("Token").fill("lwt_wrong");
  await other.page.getByRole("button", { name: "Sign in" }).click();
  await other.page.getByText("the token is wrong, revoked or expired").waitFor();

  // Whoever was never signed in is told nothing.
  const fresh = await open();
  await fresh.page.goto(`${given.address}/`);
  await fresh.page.getByLabel("Token").waitFor();
  assert.equal(await fresh.page.getByRole("alert").count(), 0);

  // A token that is revoked ends its session at once.
  const viewer = await openAs("viewer");
  const revoke = ["token", "revoke", "viewer", "--state", given.state];
  execFileSync(given.program, revoke, { stdio: "ignore" });
  await viewer.page.getByLabel("Token").waitFor();
  await viewer.page.getByText("that you signed in with was revoked").waitFor();
  assert.equal(await kept(viewer.page), "{}");
});
