/** Finds the program, and prints its definitions of the tools. */

import { execFileSync } from "node:child_process";
import { accessSync, constants, statSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

import { LegworkError } from "./errors.js";

/** The program: the given one, that of $LEGWORK_PROGRAM, this package's own, that of PATH. */
export function findProgram(explicit?: string): string {
  for (const [named, source] of [
    [explicit, "program"],
    [process.env["LEGWORK_PROGRAM"], "$LEGWORK_PROGRAM"],
  ] as const) {
    if (named) {
      const found = onPath(named);
      if (found) return found;
      throw new LegworkError("program_not_found", `there is no program ${named} (${source})`);
    }
  }
  const found = ownProgram() ?? onPath("legwork");
  if (found) return found;
  throw new LegworkError(
    "program_not_found",
    "the program `legwork` is neither in this package nor on PATH",
    { recoveryHint: "install it, or name it with `program` or $LEGWORK_PROGRAM" },
  );
}

/** The package that has the program of this platform. */
export const platformPackage = `@legwork/${process.platform}-${process.arch}`;

/** The program that was installed with this package. */
export function ownProgram(): string | undefined {
  try {
    return createRequire(import.meta.url).resolve(`${platformPackage}/bin/legwork`);
  } catch {
    return undefined;
  }
}

function onPath(name: string): string | undefined {
  const folders = name.includes("/") ? [""] : (process.env["PATH"] ?? "").split(":");
  return folders.map((folder) => path.join(folder, name)).find(isProgram);
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}

/** The tools that `legwork mcp` offers by default. */
export const DEFAULT_TOOLS = [
  "ExecCommand",
  "TaskList",
  "TaskStatus",
  "TaskOutput",
  "TaskInput",
  "TaskStop",
  "TaskWait",
] as const;

/** The tools for a model, in the form of a protocol or a model provider. */
export function toolDefinitions(
  format: "mcp" | "openai" | "anthropic" | "gemini",
  options: { tools?: readonly string[]; program?: string } = {},
): unknown {
  const tools = (options.tools ?? DEFAULT_TOOLS).join(",");
  const command = ["tools", "--format", format, "--tools", tools];
  return JSON.parse(execFileSync(findProgram(options.program), command, { encoding: "utf8" }));
}
