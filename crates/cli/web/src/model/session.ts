// Who is signed in, and what they may do.
import { ApiError, get, onSignedOut, send } from "./api";
import { askTabs, secret, share } from "./secret";
import { Signal } from "./signal";
import type { Session } from "./types";

/** Undefined before that is known, null if nobody is. */
export const session = new Signal<Session | null | undefined>(undefined);

/** Why somebody is not signed in; undefined if they never were. */
export const whyNot = new Signal<unknown>(undefined);

onSignedOut(leave);

function leave(why?: unknown): void {
  secret.value = undefined;
  whyNot.value = why;
  session.value = null;
}

/** How long another tab has to answer before we ask for a token. */
const TABS_MS = 250;

/** Takes the code of a sign-in link out of the address, so that it does not stay in the history. */
function takeCode(): string | undefined {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return undefined;
  history.replaceState(null, "", location.pathname + location.search);
  return code;
}

let code = takeCode();

// A link that is opened where the page is already changes nothing but the hash.
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#code=")) location.reload();
});

/** Finds out who is signed in: by the code of a link, by what this tab knows or by another tab. */
export async function begin(): Promise<void> {
  if (code) {
    try {
      return await enter({ code });
    } catch (error) {
      if (!(error instanceof ApiError) || error.isUnreachable) throw error;
      // A link that was used counts for nothing, but we may be signed in.
      whyNot.value = error;
      code = undefined;
    }
  }
  if (secret.value) {
    session.value = await get<Session>("session");
    return;
  }
  askTabs();
  setTimeout(() => {
    if (!secret.value) session.value = null;
  }, TABS_MS);
}

async function enter(body: object, headers?: Record<string, string>): Promise<void> {
  const sent = { body, isSignIn: true };
  const response = await send("POST", "session", headers ? { ...sent, headers } : sent);
  const { secret: own, ...who }: Session & { secret: string } = await response.json();
  code = undefined;
  secret.value = own;
  session.value = who;
  share();
}

export async function signIn(token: string): Promise<void> {
  await enter({}, { Authorization: `Bearer ${token}` });
}

export async function signOut(): Promise<void> {
  await send("DELETE", "session");
  leave();
}

export const mayAnswer = (who: Session): boolean => who.role === "operator";
export const mayChange = (who: Session): boolean => who.role !== "viewer";
export const seesQuestions = (who: Session): boolean => who.role !== "agent";

/** Whether somebody sees all workspaces; the audit log and the machine are for these alone. */
export const seesAll = (who: Session): boolean => who.role !== "agent" && who.workspace === null;
