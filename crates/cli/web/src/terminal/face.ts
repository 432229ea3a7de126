// What the page and the terminal's own file know of each other.

export interface TerminalEvents {
  attached(mayType: boolean): void;
  sized(rows: number, cols: number): void;
  refused(why: string): void;
  closed(code: number, reason: string): void;
}

export interface OpenedTerminal {
  /** Types a text. */
  send(text: string): void;
  /** Pastes a text: a program can tell that from typing. */
  paste(text: string): void;
  /** Gives the terminal the size that fits into the page, from now on. */
  fit(): void;
  close(): void;
}

export interface TerminalModule {
  open(
    box: HTMLElement,
    address: string,
    protocols: string[],
    events: TerminalEvents,
  ): OpenedTerminal;
}
