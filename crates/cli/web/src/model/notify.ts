// Notifications of the system, where the browser has them and the person wants them.
import { visible } from "../text/visible";
import type { Question } from "./types";

export const canAsk = (): boolean =>
  typeof Notification !== "undefined" && Notification.permission === "default";

export async function askPermission(): Promise<void> {
  await Notification.requestPermission();
}

const TAG = "legwork-question";
const CHARACTERS_MAX = 120;

/** Says that a question has come, unless the page can be seen anyway. */
export function notify(question: Question, count: number): void {
  if (!document.hidden || typeof Notification === "undefined") return;
  if (Notification.permission !== "granted") return;
  const body = visible(question.cause ?? question.command).slice(0, CHARACTERS_MAX);
  const title = count === 1 ? "A command waits for your answer" : `${count} commands wait`;
  try {
    const shown = new Notification(title, { body, tag: TAG });
    shown.onclick = () => {
      window.focus();
      location.hash = "#/questions";
      shown.close();
    };
  } catch {
    // Some phones allow this to service workers only; the title says it, too.
  }
}
