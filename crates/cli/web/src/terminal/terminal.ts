// A terminal of a task in the page. A file of its own, loaded when the first one is opened.
import { FitAddon } from "@xterm/addon-fit";
import { type ITheme, Terminal } from "@xterm/xterm";
import css from "@xterm/xterm/css/xterm.css";
import type { OpenedTerminal, TerminalEvents } from "./face";
import { adopt } from "./styles";

adopt(css);

const SCROLLBACK_LINES = 2000;

/** Bytes of a message to the server; it takes 64 KiB. */
const MESSAGE_BYTES = 32 * 1024;

const FONT_PIXELS = 14;
const FONT_PIXELS_MIN = 7;

/** The width of a character, as a part of the size of its font. */
const CHARACTER_WIDTH = 0.61;

const DARK: ITheme = {
  background: "#11151c",
  foreground: "#dfe5ee",
  cursor: "#dfe5ee",
  selectionBackground: "#3b5b8a",
};

const LIGHT: ITheme = {
  background: "#ffffff",
  foreground: "#1b2430",
  cursor: "#1b2430",
  selectionBackground: "#b9d2f5",
  black: "#1b2430",
  red: "#b3261e",
  green: "#1d6b33",
  yellow: "#7a5200",
  blue: "#1f5fbf",
  magenta: "#8b2fa8",
  cyan: "#0f6674",
  white: "#5a6473",
  brightBlack: "#5a6473",
  brightRed: "#c9302c",
  brightGreen: "#23793c",
  brightYellow: "#8a5d00",
  brightBlue: "#2a6fd6",
  brightMagenta: "#9c3bbb",
  brightCyan: "#127583",
  brightWhite: "#1b2430",
};

/** Opens a terminal in an element, connected to an address. */
export function open(
  box: HTMLElement,
  address: string,
  protocols: string[],
  events: TerminalEvents,
): OpenedTerminal {
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const theme = (): ITheme => (scheme.matches ? DARK : LIGHT);
  const terminal = new Terminal({
    scrollback: SCROLLBACK_LINES,
    fontSize: FONT_PIXELS,
    fontFamily: "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
    minimumContrastRatio: 4.5,
    theme: theme(),
    // What a program prints must not lead anywhere.
    linkHandler: { activate: () => {} },
    disableStdin: true,
    cursorBlink: false,
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(box);
  const recolour = (): void => {
    terminal.options.theme = theme();
  };
  scheme.addEventListener("change", recolour);

  const encoder = new TextEncoder();
  const socket = new WebSocket(address, protocols);
  socket.binaryType = "arraybuffer";
  let mayType = false;
  let fits = false;

  const type = (bytes: Uint8Array<ArrayBuffer>): void => {
    if (!mayType || socket.readyState !== WebSocket.OPEN) return;
    for (let at = 0; at < bytes.length; at += MESSAGE_BYTES) {
      socket.send(bytes.subarray(at, at + MESSAGE_BYTES));
    }
  };
  terminal.onData((text) => type(encoder.encode(text)));
  terminal.onBinary((text) => type(Uint8Array.from(text, (it) => it.charCodeAt(0) & 0xff)));

  /** Makes the letters so small that a line fits, where the size is not ours to choose. */
  const scale = (cols: number): void => {
    const pixels = Math.floor(box.clientWidth / (cols * CHARACTER_WIDTH));
    terminal.options.fontSize = Math.max(FONT_PIXELS_MIN, Math.min(FONT_PIXELS, pixels));
  };

  const tell = (rows: number, cols: number): void => {
    if (mayType && socket.readyState === WebSocket.OPEN) {
      socket.send(JSON.stringify({ type: "resize", rows, cols }));
    }
  };
  const fitNow = (): void => {
    terminal.options.fontSize = FONT_PIXELS;
    fit.fit();
    tell(terminal.rows, terminal.cols);
    events.sized(terminal.rows, terminal.cols);
  };
  const observer = new ResizeObserver(() => (fits ? fitNow() : scale(terminal.cols)));
  observer.observe(box);

  socket.onmessage = ({ data }) => {
    if (data instanceof ArrayBuffer) {
      terminal.write(new Uint8Array(data));
      return;
    }
    const said = JSON.parse(data);
    if (said.type === "attached") {
      mayType = said.may_type;
      terminal.options.disableStdin = !mayType;
      terminal.reset();
      terminal.resize(said.cols, said.rows);
      scale(said.cols);
      events.attached(mayType);
      events.sized(said.rows, said.cols);
      if (mayType) terminal.focus();
    } else if (said.type === "refused") {
      events.refused(said.error?.message ?? "The keys were refused");
    } else if (said.type === "skipped") {
      events.refused(`${said.bytes} bytes of output were not kept`);
    }
  };
  socket.onclose = ({ code, reason }) => {
    mayType = false;
    terminal.options.disableStdin = true;
    events.closed(code, reason);
  };

  return {
    send: (text) => {
      type(encoder.encode(text));
      terminal.focus();
    },
    paste: (text) => {
      terminal.paste(text);
      terminal.focus();
    },
    fit: () => {
      fits = true;
      fitNow();
      terminal.focus();
    },
    close: () => {
      observer.disconnect();
      scheme.removeEventListener("change", recolour);
      socket.onclose = null;
      socket.close();
      terminal.dispose();
    },
  };
}
