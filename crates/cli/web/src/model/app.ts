// Keeps what the page knows true while somebody is signed in.
import { follow } from "./events";
import { given, questions, refreshQuestions } from "./questions";
import { seesQuestions, session } from "./session";
import { taskChange, taskList } from "./tasks";

let stop: (() => void) | undefined;

function lookAnew(): void {
  const who = session.value;
  if (!who) return;
  if (seesQuestions(who)) refreshQuestions().catch(() => {});
  void taskList.reload();
  taskChange.value = { id: "" };
}

/** Begins to follow when somebody signs in, and ends it when they are signed out. */
export function keepUp(): void {
  const change = (): void => {
    stop?.();
    stop = undefined;
    if (!session.value) {
      given.value = [];
      return;
    }
    stop = follow({
      lookAnew,
      happened: ({ task_id: id, approval_id: question }) => {
        const who = session.value;
        if (question && who && seesQuestions(who)) refreshQuestions().catch(() => {});
        if (id) {
          taskList.changed(id);
          taskChange.value = { id };
        }
      },
    });
  };
  session.watch(change);
  questions.watch(() => {
    const count = questions.value?.length ?? 0;
    document.title = count > 0 ? `(${count}) Legwork` : "Legwork";
  });
  change();
}
