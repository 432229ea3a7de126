#!/usr/bin/env node
/**
 * The command `legwork`: starts the program of this platform, and ends as it does.
 *
 * Node cannot become another program (it has no exec), so it stays the parent: streams are inherited,
 * signals are passed on.
 */

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { constants } from "node:os";

import { ownProgram, platformPackage } from "./program.js";

/** Signals that somebody sends to end a program, or to tell it something. */
const PASSED_ON = ["SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2"] as const;

/** What a terminal sends to all processes in its foreground when a key is pressed. */
const OF_KEYS: readonly string[] = ["SIGINT", "SIGQUIT"];

function start(program: string): void {
  const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
  for (const signal of PASSED_ON) {
    process.on(signal, () => {
      // One Ctrl-C must not arrive twice: for many programs the second one means "at once".
      if (!(OF_KEYS.includes(signal) && isInForeground())) child.kill(signal);
    });
  }
  child.on("error", (error: NodeJS.ErrnoException) => {
    console.error(`legwork: ${program}: ${error.message}`);
    process.exit(error.code === "ENOENT" ? 127 : 126);
  });
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code ?? 1);
    for (const each of PASSED_ON) process.removeAllListeners(each);
    process.kill(process.pid, signal);
    // Only where the signal does not end this process.
    process.exit(128 + constants.signals[signal]);
  });
}

/** Whether keys of the terminal reach this process: then they reach the program, too. */
function isInForeground(): boolean {
  try {
    const status = readFileSync("/proc/self/stat", "utf8");
    // After the name, which may have spaces: state, parent, group, session, terminal, foreground.
    const fields = status.slice(status.lastIndexOf(")") + 2).split(" ");
    return fields[2] === fields[5];
  } catch {
    return false;
  }
}

const program = ownProgram();
if (program === undefined) {
  console.error(
    `legwork: the package ${platformPackage} is not installed: either there is no program for ` +
      "this platform, or optional dependencies were left out (--omit=optional)",
  );
  process.exit(127);
}
start(program);
