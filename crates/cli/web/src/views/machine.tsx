// Machine: versions, space, the sandbox, and what the doctor finds.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { get } from "../model/api";
import { now, useSignal } from "../model/signal";
import type { Doctor, Machine, Session } from "../model/types";
import { age, bytes, clock, duration, plural } from "../text/format";
import { Facts, Problem } from "../ui/words";
import { Sandbox } from "./sandbox";

/** The numbers are read again after so long, while they are looked at. */
const LOOK_MS = 10_000;

export function MachineView({ who }: { who: Session }): JSX.Element {
  const [machine, setMachine] = useState<Machine | undefined>(undefined);
  const [failure, setFailure] = useState<unknown>(undefined);
  const time = useSignal(now);
  useEffect(() => {
    const look = (): void => {
      get<Machine>("machine").then(setMachine, setFailure);
    };
    look();
    const timer = setInterval(() => !document.hidden && look(), LOOK_MS);
    return () => clearInterval(timer);
  }, []);
  const usage = machine?.usage;
  return (
    <main>
      <h1>Machine</h1>
      <Problem error={failure} />
      {!machine && !failure && <p role="status">Loading…</p>}
      {machine && usage && (
        <>
          <Facts
            rows={[
              ["Version", `legwork ${machine.version}`],
              [
                "Server",
                `since ${clock(machine.began_at_ms)} (${duration(time - machine.began_at_ms)})`,
              ],
              ["Workspace", machine.workspace],
              ["State folder", machine.state],
              ["Running", plural(machine.tasks_running, "task")],
              ["Waiting", plural(machine.questions_open, "question")],
              ["Tasks", plural(usage.tasks, "task")],
              ["Oldest", usage.oldest_at_ms && `${age(time - usage.oldest_at_ms)} ago`],
              ["Ledger", bytes(usage.ledger_bytes)],
              ["Audit log", bytes(machine.audit_bytes)],
              ["Output", `${bytes(usage.folder_bytes)} in ${plural(usage.folders, "folder")}`],
              ["Wardens", `${machine.wardens.busy} busy, ${machine.wardens.ready} ready`],
            ]}
          />
          <Sandbox report={machine.sandbox} />
        </>
      )}
      {who.role === "operator" && <DoctorView />}
    </main>
  );
}

function DoctorView(): JSX.Element {
  const [doctor, setDoctor] = useState<Doctor | undefined>(undefined);
  const [failure, setFailure] = useState<unknown>(undefined);
  const examine = (): void => {
    setDoctor(undefined);
    get<Doctor>("machine/doctor").then(setDoctor, setFailure);
  };
  useEffect(examine, []);
  return (
    <section aria-labelledby="doctor">
      <div class="title">
        <h2 id="doctor">Doctor</h2>
        <button disabled={!doctor && !failure} onClick={examine}>
          Check again
        </button>
      </div>
      <Problem error={failure} />
      <p role="status" class={doctor?.healthy ? "good" : doctor ? "problem" : "faint"}>
        {!doctor && !failure && "Trying out what this machine can do…"}
        {doctor && (doctor.healthy ? "Everything works." : "Something does not work.")}
      </p>
      {doctor && (
        <>
          <ul class="checks">
            {doctor.checks.map(({ name, ok, detail }) => (
              <li key={name}>
                <span class={ok ? "good" : "bad"}>{ok ? "✓ works" : "✕ fails"}</span>{" "}
                <strong>{name}</strong> {detail}
              </li>
            ))}
          </ul>
          <h3>Layers of protection</h3>
          <ul class="checks">
            {doctor.layers.map(({ name, available, reason }) => (
              <li key={name}>
                <span class={available ? "good" : "bad"}>
                  {available ? "✓ available" : "✕ missing"}
                </span>{" "}
                <strong>{name.replaceAll("_", " ")}</strong> {reason}
              </li>
            ))}
          </ul>
          <Facts
            rows={[
              ["Asks", doctor.effective.ask],
              ["Sandbox", doctor.effective.sandbox],
              ["Network", doctor.effective.network ? "yes" : "no"],
            ]}
          />
        </>
      )}
    </section>
  );
}
