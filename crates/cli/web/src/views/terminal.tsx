// The terminal of a running task, live; people who may type into it can.
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { address } from "../model/api";
import { secret } from "../model/secret";
import type { OpenedTerminal, TerminalModule } from "../terminal/face";

/** The address of the terminal's own file; the build knows it. */
declare const TERMINAL_URL: string;

const RETRY_MS = 1000;

/** Close codes after which a new connection makes sense: the server ended, or we were slow. */
const PASSING = [1001, 1006, 4002, 4003];

const KEYS: [label: string, name: string, text: string][] = [
  ["Esc", "Esc", "\u001b"],
  ["Tab", "Tab", "\t"],
  ["^C", "Control C", "\u0003"],
  ["^D", "Control D", "\u0004"],
  ["↑", "Up", "\u001b[A"],
  ["↓", "Down", "\u001b[B"],
  ["←", "Left", "\u001b[D"],
  ["→", "Right", "\u001b[C"],
];

/** Browsers let a page read the clipboard over TLS and on this machine only. */
const canPaste = typeof navigator.clipboard?.readText === "function";

function socketAddress(id: string): string {
  const path = address(`tasks/${encodeURIComponent(id)}/terminal`);
  const url = new URL(path, document.baseURI);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url.href;
}

export function TerminalView({ id, onEnd }: { id: string; onEnd: () => void }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const opened = useRef<OpenedTerminal | undefined>(undefined);
  const [mayType, setMayType] = useState(false);
  const [size, setSize] = useState("");
  const [message, setMessage] = useState("Connecting…");

  useEffect(() => {
    let isOver = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const connect = async (): Promise<void> => {
      const module = (await import(TERMINAL_URL)) as TerminalModule;
      const element = box.current;
      if (isOver || !element) return;
      opened.current?.close();
      // A WebSocket can have no header of its own; a subprotocol has to say who we are.
      const protocols = ["legwork", secret.value ?? ""].filter(Boolean);
      opened.current = module.open(element, socketAddress(id), protocols, {
        attached: (may) => {
          setMayType(may);
          setMessage(may ? "" : "You can look, but not type.");
        },
        sized: (rows, cols) => setSize(`${cols} × ${rows}`),
        refused: setMessage,
        closed: (code, reason) => {
          setMayType(false);
          if (isOver) return;
          if (!PASSING.includes(code)) {
            setMessage(reason || "The terminal is closed");
            onEnd();
            return;
          }
          setMessage("The connection is lost; trying again…");
          onEnd();
          timer = setTimeout(() => void connect().catch(failed), RETRY_MS);
        },
      });
    };
    const failed = (error: unknown): void => {
      if (isOver) return;
      console.error(error);
      setMessage("The terminal cannot be loaded; trying again…");
      timer = setTimeout(() => void connect().catch(failed), RETRY_MS);
    };
    void connect().catch(failed);
    return () => {
      isOver = true;
      clearTimeout(timer);
      opened.current?.close();
      opened.current = undefined;
    };
  }, [id]);

  const paste = async (): Promise<void> => {
    try {
      opened.current?.paste(await navigator.clipboard.readText());
    } catch {
      setMessage("The browser does not let the page read the clipboard");
    }
  };
  return (
    <section aria-label="Terminal">
      <div class="bar">
        <span class="faint">{size}</span>
        {mayType && <button onClick={() => opened.current?.fit()}>Fit to window</button>}
        {mayType && canPaste && <button onClick={() => void paste()}>Paste</button>}
        <span role="status" class="faint">
          {message}
        </span>
      </div>
      <div ref={box} class="terminal-box" />
      {mayType && (
        <div class="bar key-bar" role="group" aria-label="Keys">
          {KEYS.map(([label, name, text]) => (
            <button key={name} aria-label={name} onClick={() => opened.current?.send(text)}>
              {label}
            </button>
          ))}
        </div>
      )}
    </section>
  );
}
