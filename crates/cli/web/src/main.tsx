// The page of `legwork serve`.
import { type JSX, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError } from "./model/api";
import { keepUp } from "./model/app";
import { begin, session } from "./model/session";
import { useSignal } from "./model/signal";
import { Shell } from "./views/shell";
import { SignIn } from "./views/signin";
import { Problem } from "./ui/words";

/** How long to wait before a server that does not answer is asked again. */
const RETRY_MS = 2000;

function Page(): JSX.Element {
  const who = useSignal(session);
  const [problem, setProblem] = useState<unknown>(undefined);
  useEffect(() => {
    const start = async (): Promise<void> => {
      try {
        await begin();
      } catch (error) {
        // Who opens the page without a link was never signed in: nothing is wrong.
        const isWrong = error instanceof ApiError && error.message.includes("code");
        setProblem(error instanceof ApiError && error.isSignedOut && !isWrong ? undefined : error);
        if (error instanceof ApiError && error.isUnreachable)
          setTimeout(() => void start(), RETRY_MS);
      }
    };
    void start();
  }, []);
  if (who) return <Shell who={who} />;
  if (who === null) return <SignIn problem={problem} />;
  return (
    <div class="waiting">
      <p role="status">Connecting…</p>
      <Problem error={problem} />
    </div>
  );
}

keepUp();
const place = document.getElementById("page");
if (place) {
  place.replaceChildren();
  render(<Page />, place);
}
