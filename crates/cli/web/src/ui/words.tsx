// Small pieces that several views use.
import type { ComponentChildren, JSX } from "preact";
import { words } from "../model/api";
import type { Part, Status, Verdict } from "../model/types";
import { stretches } from "../text/parts";
import { pieces } from "../text/visible";

/** A text of somebody else's: what does not print in it is shown, and marked. */
export function Foreign({ text }: { text: string }): JSX.Element {
  return (
    <bdi>
      {pieces(text).map((piece, place) =>
        piece.isEscape ? (
          <span key={place} class="escape">
            {piece.text}
          </span>
        ) : (
          piece.text
        ),
      )}
    </bdi>
  );
}

/** A command in its lines, with its parts coloured by verdict. */
export function Command({ text, parts = [] }: { text: string; parts?: Part[] }): JSX.Element {
  return (
    <pre class="command" tabIndex={0} aria-label="Command">
      {stretches(text, parts).map((stretch, place) => (
        <span key={place} class={stretch.verdict && `part ${stretch.verdict}`}>
          {stretch.text
            .split("\n")
            .map((line, number) => [number > 0 && "\n", <Foreign key={number} text={line} />])}
        </span>
      ))}
    </pre>
  );
}

const SIGNS: Record<Verdict, string> = { allow: "✓", ask: "?", deny: "✕" };

export function VerdictBadge({ verdict }: { verdict: Verdict }): JSX.Element {
  return (
    <span class={`badge ${verdict}`}>
      <span aria-hidden="true">{SIGNS[verdict]}</span> {verdict}
    </span>
  );
}

/** The parts of a command, each with its verdict. */
export function Parts({ parts }: { parts: Part[] }): JSX.Element {
  return (
    <ul class="parts">
      {parts.map(({ text, verdict }, place) => (
        <li key={place}>
          <VerdictBadge verdict={verdict} />
          <code>
            <Foreign text={text} />
          </code>
        </li>
      ))}
    </ul>
  );
}

export function StatusBadge({ status, text }: { status: Status; text: string }): JSX.Element {
  return <span class={`status ${status}`}>{text}</span>;
}

/** Names with what belongs to them; a row without a value is left out. */
export function Facts({ rows }: { rows: [string, ComponentChildren][] }): JSX.Element {
  return (
    <dl class="facts">
      {rows.map(
        ([name, value]) =>
          value !== undefined &&
          value !== null &&
          value !== false &&
          value !== "" && (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ),
      )}
    </dl>
  );
}

export function Problem({ error }: { error: unknown }): JSX.Element | null {
  if (!error) return null;
  return (
    <p class="problem" role="alert">
      {words(error)}
    </p>
  );
}
