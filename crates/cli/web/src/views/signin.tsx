import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { signIn } from "../model/session";
import { Problem } from "../ui/words";

/** Asks for a token; whoever opened a sign-in link does not come here. */
export function SignIn({ problem }: { problem: unknown }): JSX.Element {
  const [failure, setFailure] = useState<unknown>(undefined);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    const field = (event.target as HTMLFormElement).elements.namedItem("token");
    if (!(field instanceof HTMLInputElement)) return;
    const token = field.value.trim();
    field.value = "";
    setBusy(true);
    try {
      await signIn(token);
    } catch (error) {
      setFailure(error);
      setBusy(false);
    }
  };
  return (
    <main class="signin">
      <h1>Legwork</h1>
      <form onSubmit={(event) => void submit(event)}>
        <label for="token">Token</label>
        <input id="token" name="token" type="password" autocomplete="off" required autofocus />
        <button class="primary" disabled={isBusy}>
          Sign in
        </button>
      </form>
      <Problem error={failure ?? problem} />
      <p class="faint">
        <code>legwork serve link</code> on the machine of the server prints a link that signs you
        in; <code>legwork token add NAME --role operator</code> makes a token.
      </p>
    </main>
  );
}
