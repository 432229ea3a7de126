// Who is signed in, and what they may do.
import { get, onSignedOut, send } from "./api";
import { Signal } from "./signal";
import type { Session } from "./types";

/** Undefined before that is known, null if nobody is. */
export const session = new Signal<Session | null | undefined>(undefined);

onSignedOut(() => (session.value = null));

/** Takes the code of a sign-in link out of the address, so that it does not stay in the history. */
function takeCode(): string | undefined {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (!code) return undefined;
  history.replaceState(null, "", location.pathname + location.search);
  return code;
}

/** Finds out who is signed in, with the code of a link if there is one. */
export async function begin(): Promise<void> {
  const code = takeCode();
  if (code) await send("POST", "session", { body: { code } });
  session.value = await get<Session>("session");
}

export async function signIn(token: string): Promise<void> {
  const headers = { Authorization: `Bearer ${token}` };
  const response = await send("POST", "session", { body: {}, headers });
  session.value = await response.json();
}

export async function signOut(): Promise<void> {
  await send("DELETE", "session");
  session.value = null;
}

export const mayAnswer = (who: Session): boolean => who.role === "operator";
export const mayChange = (who: Session): boolean => who.role !== "viewer";
export const seesQuestions = (who: Session): boolean => who.role !== "agent";

/** Whether somebody sees all workspaces; the audit log and the machine are for these alone. */
export const seesAll = (who: Session): boolean => who.role !== "agent" && who.workspace === null;
