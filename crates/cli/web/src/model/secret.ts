// The secret of the session, which every request brings.
//
// It is kept in the sessionStorage, which pages of another origin cannot read; a port is a part of
// the origin, which it is not for cookies. What is there ends with the tab, while localStorage would
// keep it on the disk until somebody deletes it. So that a new tab need not sign in, the tabs of
// this page hand it on among themselves.
import { Signal } from "./signal";

/** Several servers may share an origin, each below a path of its own. */
const PLACE = `legwork ${new URL(".", location.href).pathname}`;

export const secret = new Signal(sessionStorage.getItem(PLACE) ?? undefined);

secret.watch(() => {
  if (secret.value) sessionStorage.setItem(PLACE, secret.value);
  else sessionStorage.removeItem(PLACE);
});

const WANTED = "wanted";
const tabs = new BroadcastChannel(PLACE);

/** Gives the secret to the tabs that have none. */
export function share(): void {
  if (secret.value) tabs.postMessage(secret.value);
}

/** Asks the other tabs for the secret. */
export function askTabs(): void {
  tabs.postMessage(WANTED);
}

/** Has a function called when another tab has given us the secret. */
export function onShared(callback: () => void): void {
  tabs.onmessage = ({ data }) => {
    if (data === WANTED) share();
    else if (!secret.value) {
      secret.value = data;
      callback();
    }
  };
}
