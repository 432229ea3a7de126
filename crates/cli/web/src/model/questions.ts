// The open questions.
import { get, post } from "./api";
import { notify } from "./notify";
import { Signal } from "./signal";
import type { Decision, Question } from "./types";

/** Undefined before they are known. */
export const questions = new Signal<Question[] | undefined>(undefined);

/** Whether the last answer was to try a command first, and no question has come since. */
export const triedLast = new Signal(false);

/** An answer that was given here. */
export interface GivenAnswer {
  question: Question;
  words: string;
}

/** Answers that are still shown. */
const GIVEN_MAX = 5;

/** The last answers, the newest first. */
export const given = new Signal<GivenAnswer[]>([]);

const GIVEN_WORDS: Record<Decision, string> = {
  deny: "Denied",
  try_first: "Tried on a copy",
  apply: "Applied",
  allow_once: "Allowed once",
  allow_once_unconfined: "Allowed once, OUTSIDE the sandbox",
  allow_session: "Allowed for this session",
  allow_rule: "Allowed always",
};

let looking: Promise<void> | undefined;
let again = false;

/** Reads the questions; a call during another one has them read once more. */
export function refreshQuestions(): Promise<void> {
  if (looking) {
    again = true;
    return looking;
  }
  looking = read().finally(() => {
    looking = undefined;
    if (again) {
      again = false;
      void refreshQuestions().catch(() => {});
    }
  });
  return looking;
}

async function read(): Promise<void> {
  const known = new Set(questions.value?.map((it) => it.approval_id));
  const { questions: open } = await get<{ questions: Question[] }>("questions");
  // Those whose asker still waits come first.
  open.sort((a, b) => Number(b.asking) - Number(a.asking) || a.created_at_ms - b.created_at_ms);
  const fresh = open.filter((it) => !known.has(it.approval_id));
  if (fresh[0]) triedLast.value = false;
  if (questions.value && fresh[0]) notify(fresh[0], open.length);
  questions.value = open;
}

/** Answers a question; the first answer counts, whoever gives it. */
export async function answer(question: Question, decision: Decision, note: string): Promise<void> {
  const body = note.trim() ? { decision, note: note.trim() } : { decision };
  // Before the request: the next question may be here before its answer is.
  triedLast.value = decision === "try_first";
  await post(`questions/${encodeURIComponent(question.approval_id)}/answer`, body);
  const words = GIVEN_WORDS[decision] + ("note" in body ? ", with a note" : "");
  given.value = [{ question, words }, ...given.value].slice(0, GIVEN_MAX);
  questions.value = questions.value?.filter((it) => it.approval_id !== question.approval_id);
}
