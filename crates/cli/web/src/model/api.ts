// Requests to the API. Addresses are relative, so that the page works behind a path prefix.
import { secret } from "./secret";

export class ApiError extends Error {
  constructor(
    message: string,
    readonly kind: string,
    readonly status: number,
    readonly hint: string | undefined,
  ) {
    super(message);
  }

  /** Nobody is signed in (any more). */
  get isSignedOut(): boolean {
    return this.status === 401;
  }

  /** The server did not answer at all. */
  get isUnreachable(): boolean {
    return this.status === 0;
  }
}

/** The words for an error of any kind. */
export function words(error: unknown): string {
  if (error instanceof ApiError && error.hint) return `${error.message} (${error.hint})`;
  return error instanceof Error ? error.message : String(error);
}

export function isAborted(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

interface Sent {
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** Whether this is what begins a session: it is sent without one. */
  isSignIn?: boolean;
}

let whenSignedOut = (_why: ApiError): void => {};

/** Has a function called when the server does not know us (any more). */
export function onSignedOut(callback: (why: ApiError) => void): void {
  whenSignedOut = callback;
}

export function address(path: string): string {
  return `api/v1/${path}`;
}

/** Sends a request; the answer, once its head is here. */
export async function send(method: string, path: string, sent: Sent = {}): Promise<Response> {
  const own = sent.isSignIn ? undefined : secret.value;
  const headers: Record<string, string> = { ...sent.headers };
  if (own) headers["X-Legwork"] = own;
  const init: RequestInit = { method, headers };
  if (sent.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(sent.body);
  }
  if (sent.signal) init.signal = sent.signal;
  let response: Response;
  try {
    response = await fetch(address(path), init);
  } catch (error) {
    if (isAborted(error)) throw error;
    throw new ApiError("The server does not answer", "unreachable", 0, undefined);
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  const { message, kind, recovery_hint: hint } = problem.error ?? {};
  const error = new ApiError(
    message ?? `The server answered ${response.status}`,
    kind ?? "unknown",
    response.status,
    hint,
  );
  // Somebody may have signed in meanwhile.
  if (error.isSignedOut && !sent.isSignIn && own === secret.value) whenSignedOut(error);
  throw error;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await send("GET", path, signal ? { signal } : {})).json();
}

export async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  return (await send("POST", path, signal ? { body, signal } : { body })).json();
}

/** Has the browser download what is at an address, to which it cannot bring the secret. */
export async function download(path: string): Promise<void> {
  const asked = { path: `/${address(path)}` };
  const { ticket } = await post<{ ticket: string }>("session/tickets", asked);
  const link = document.createElement("a");
  link.href = address(`${path}${query({ ticket })}`);
  link.download = "";
  link.click();
}

/** Fields of a query; what is empty is left out. */
export function query(fields: Record<string, string | number | undefined>): string {
  const given = Object.entries(fields).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return text && `?${text}`;
}
