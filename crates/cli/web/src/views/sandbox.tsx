// A report of a sandbox: what was in force, and what was not.
import type { JSX } from "preact";
import type { SandboxReport } from "../model/types";
import { Facts } from "../ui/words";
import { SandboxWords } from "./question";

const named = (layer: string): string => layer.replaceAll("_", " ");

export function Sandbox({ report }: { report: SandboxReport }): JSX.Element {
  const { level, network, network_by_name, outside, enforced, missing } = report;
  const reach = network_by_name ? "network by name" : network ? "with network" : "no network";
  const words = level === "none" ? [level, outside].filter(Boolean).join(", ") : `${level}, ${reach}`;
  return (
    <section aria-labelledby="sandbox">
      <h2 id="sandbox">Sandbox</h2>
      <Facts
        rows={[
          ["Level", <SandboxWords text={words} />],
          ["In force", enforced.map(named).join(", ")],
          [
            "Missing",
            missing.length > 0 && (
              <ul class="problems">
                {missing.map(({ layer, reason }) => (
                  <li key={layer}>
                    {named(layer)}: {reason}
                  </li>
                ))}
              </ul>
            ),
          ],
        ]}
      />
    </section>
  );
}
