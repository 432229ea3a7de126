// The page of `legwork serve`.
import { type JSX, render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError } from "./model/api";
import { keepUp } from "./model/app";
import { onShared } from "./model/secret";
import { begin, session, whyNot } from "./model/session";
import { useSignal } from "./model/signal";
import { Shell } from "./views/shell";
import { SignIn } from "./views/signin";
import { Problem } from "./ui/words";

/** How long to wait before a server that does not answer is asked again. */
const RETRY_MS = 2000;

function Page(): JSX.Element {
  const who = useSignal(session);
  const why = useSignal(whyNot);
  const [problem, setProblem] = useState<unknown>(undefined);
  useEffect(() => {
    const start = async (): Promise<void> => {
      try {
        await begin();
      } catch (error) {
        setProblem(error);
        if (error instanceof ApiError && error.isUnreachable)
          setTimeout(() => void start(), RETRY_MS);
      }
    };
    onShared(() => void start());
    void start();
  }, []);
  if (who) return <Shell who={who} />;
  if (who === null) return <SignIn problem={why} />;
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
