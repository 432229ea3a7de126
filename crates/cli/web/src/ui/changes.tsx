// What a command changed that ran on a copy: the files, and the difference line by line.
import type { JSX } from "preact";
import type { ChangeKind } from "../model/types";
import { visible } from "../text/visible";
import { Foreign } from "./words";

export interface ChangedPath {
  kind: ChangeKind;
  path: string;
  /** What else is to be known of it: another mode, another owner. */
  details?: string[];
}

const SIGNS: Record<string, ChangeKind> = {
  "+": "made",
  "~": "changed",
  "-": "removed",
  ".": "touched",
};

/** A line of a list: sign, path, and what else is to be known. */
const LISTED = /^ {2}([+~.-]) (.+?)(?: \(((?:mode|owner|attributes|time|was) ?[^()]*)\))?$/;

/** The files of a list as questions have it, and what it says of those that it leaves out. */
export function listed(text: string): { files: ChangedPath[]; rest: string } {
  const files: ChangedPath[] = [];
  let rest = "";
  for (const line of text.split("\n")) {
    const found = LISTED.exec(line);
    const kind = SIGNS[found?.[1] ?? ""];
    const details = found?.[3] ? [found[3]] : [];
    if (kind) files.push({ kind, path: found?.[2] ?? "", details });
    else if (line.trim()) rest = line.trim();
  }
  return { files, rest };
}

export function Files({ files, rest }: { files: ChangedPath[]; rest: string }): JSX.Element {
  return (
    <div class="scrolls" tabIndex={0} role="group" aria-label="Changed files">
      <ul class="parts">
        {files.map(({ kind, path, details }) => (
          <li key={path}>
            <span class={`badge ${kind}`}>{kind}</span>
            <code>
              <Foreign text={path} />
            </code>
            {details && details.length > 0 && <span class="faint">{details.join(", ")}</span>}
          </li>
        ))}
      </ul>
      {rest && <p class="faint">{rest}</p>}
    </div>
  );
}

type LineKind = "file" | "hunk" | "added" | "removed" | "";

/** The kind of each line of a unified diff. */
function kinds(lines: string[]): LineKind[] {
  // A removed line may itself begin with dashes: a head is two lines, the first of a file.
  const isHead = (at: number): boolean =>
    (lines[at]?.startsWith("--- ") && lines[at + 1]?.startsWith("+++ ")) === true;
  return lines.map((line, at) => {
    if (isHead(at) || isHead(at - 1)) return "file";
    if (line.startsWith("@@")) return "hunk";
    if (line.startsWith("+")) return "added";
    return line.startsWith("-") ? "removed" : "";
  });
}

/** A difference: text, whatever is in it. */
export function Diff({ text }: { text: string }): JSX.Element {
  const lines = text.replace(/\n$/, "").split("\n");
  const kindOf = kinds(lines);
  return (
    <pre class="diff" tabIndex={0} aria-label="Difference">
      {lines.map((line, place) => (
        <div key={place} class={kindOf[place]}>
          {line.split("\t").map(visible).join("\t") || " "}
        </div>
      ))}
    </pre>
  );
}
