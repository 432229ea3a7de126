// What is around every view: names of the views, the connection, who is signed in.
import type { JSX } from "preact";
import { link } from "../model/events";
import { questions } from "../model/questions";
import { route } from "../model/route";
import { seesAll, seesQuestions, signOut } from "../model/session";
import { useSignal } from "../model/signal";
import type { Session } from "../model/types";
import { Audit } from "./audit";
import { Check } from "./check";
import { MachineView } from "./machine";
import { Questions } from "./questions";
import { TaskView } from "./task";
import { Tasks } from "./tasks";
import { Trials } from "./trials";

const VIEWS: [name: string, title: string, may: (who: Session) => boolean][] = [
  ["questions", "Questions", seesQuestions],
  ["tasks", "Tasks", () => true],
  ["trials", "Trials", seesQuestions],
  ["check", "Check", () => true],
  ["audit", "Audit", seesAll],
  ["machine", "Machine", seesAll],
];

const LINKS = { connecting: "connecting…", live: "live", lost: "no connection; trying again…" };

export function Shell({ who }: { who: Session }): JSX.Element {
  const { view, rest } = useSignal(route);
  const open = useSignal(questions);
  const state = useSignal(link);
  const views = VIEWS.filter(([, , may]) => may(who));
  const current = view === "task" ? "tasks" : view || views[0]?.[0];
  return (
    <>
      <header class="top">
        <span class="brand" aria-hidden="true">
          Legwork
        </span>
        <nav aria-label="Views">
          {views.map(([name, title]) => (
            <a key={name} href={`#/${name}`} aria-current={name === current ? "page" : undefined}>
              {title}
              {name === "questions" && open && open.length > 0 && (
                <span class="count" aria-label={`${open.length} open`}>
                  {open.length}
                </span>
              )}
            </a>
          ))}
        </nav>
        <span role="status" class={`link ${state}`}>
          {LINKS[state]}
        </span>
        <span class="who">
          <span class="faint">
            {who.name === "of the page" ? who.role : `${who.name} (${who.role})`}
          </span>{" "}
          <button onClick={() => void signOut().catch(() => {})}>Sign out</button>
        </span>
      </header>
      <View name={current ?? ""} who={who} task={view === "task" ? rest : ""} />
    </>
  );
}

function View({ name, who, task }: { name: string; who: Session; task: string }): JSX.Element {
  const known = VIEWS.find(([view, , may]) => view === name && may(who));
  if (!known) {
    return (
      <main>
        <h1>Not here</h1>
        <p>
          There is no such view, or it is not for you. <a href="#/tasks">Tasks</a>
        </p>
      </main>
    );
  }
  if (task) return <TaskView key={task} id={task} who={who} />;
  switch (name) {
    case "questions":
      return <Questions who={who} />;
    case "trials":
      return <Trials who={who} />;
    case "check":
      return <Check />;
    case "audit":
      return <Audit />;
    case "machine":
      return <MachineView who={who} />;
    default:
      return <Tasks />;
  }
}
