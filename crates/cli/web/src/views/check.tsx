// Check: the verdict on a command while it is typed. Nothing is run.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { isAborted, post } from "../model/api";
import type { Checked } from "../model/types";
import { Command, Facts, Foreign, Parts, Problem, VerdictBadge } from "../ui/words";
import { SandboxWords } from "./question";

/** Whoever types for so long without a pause is not asked about yet. */
const PAUSE_MS = 150;

let lastText = "";

export function Check(): JSX.Element {
  const [text, setText] = useState(lastText);
  const [checked, setChecked] = useState<{ text: string; verdict: Checked } | undefined>();
  const [failure, setFailure] = useState<unknown>(undefined);
  useEffect(() => {
    lastText = text;
    if (!text.trim()) {
      setChecked(undefined);
      setFailure(undefined);
      return undefined;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => {
      post<Checked>("policy/check", { command: text }, abort.signal).then(
        (verdict) => {
          setChecked({ text, verdict });
          setFailure(undefined);
        },
        (error) => !isAborted(error) && setFailure(error),
      );
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);
  return (
    <main>
      <h1>Check</h1>
      <label for="command">
        A command, judged by the rules of this server as it would be judged for you. Nothing runs.
      </label>
      <textarea
        id="command"
        class="code"
        rows={4}
        spellcheck={false}
        autocapitalize="off"
        placeholder="git push --force origin main"
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <Problem error={failure} />
      <div aria-live="polite">
        {checked && <Judged text={checked.text} verdict={checked.verdict} />}
      </div>
    </main>
  );
}

function Judged({ text, verdict: checked }: { text: string; verdict: Checked }): JSX.Element {
  return (
    <>
      <p class="verdict">
        <VerdictBadge verdict={checked.verdict} /> <Foreign text={checked.reason} />
      </p>
      <Command text={text} parts={checked.parts} />
      {checked.parts.length > 0 && <Parts parts={checked.parts} />}
      <Facts
        rows={[
          ["Rule", checked.rule && <Foreign text={checked.rule} />],
          ["Understood", !checked.understood && "not everything: it counts as unknown"],
          ["Caller", checked.trust],
          ["Folder", <Foreign text={checked.workspace} />],
          ["Sandbox", <SandboxWords text={checked.sandbox} />],
        ]}
      />
      {checked.proposed_rule && (
        <>
          <h2>A rule that allows it</h2>
          <pre tabIndex={0}>{checked.proposed_rule}</pre>
        </>
      )}
    </>
  );
}
