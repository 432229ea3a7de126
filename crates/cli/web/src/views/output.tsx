// The output of a task, live and with its colours.
import { Component, type JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Following } from "../model/follow";
import { useSignal } from "../model/signal";
import { bytes, number } from "../text/format";
import { type Block, type Line, type Span } from "../text/log";
import { Problem } from "../ui/words";

type Streams = "both" | "stdout" | "stderr";

const CHOICES: [Streams, string][] = [
  ["both", "Both, in order"],
  ["stdout", "stdout"],
  ["stderr", "stderr"],
];

/** Whoever is this near to the end, in pixels, follows it. */
const NEAR = 48;

/** Scrolling within this time after a key, a wheel or a finger is the person's. */
const USER_MS = 1000;

export function Output({ id }: { id: string }): JSX.Element {
  const [following, setFollowing] = useState<Following | undefined>(undefined);
  useEffect(() => {
    const made = new Following(id);
    setFollowing(made);
    return () => made.stop();
  }, [id]);
  return following ? <LogView following={following} /> : <div class="log" />;
}

function LogView({ following }: { following: Following }): JSX.Element {
  const version = useSignal(following.version);
  const isOver = useSignal(following.isOver);
  const problem = useSignal(following.problem);
  const [streams, setStreams] = useState<Streams>("both");
  const [wraps, setWraps] = useState(true);
  const box = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const userAt = useRef(-USER_MS);
  const toEnd = (): void => {
    const element = box.current;
    if (element && follows.current) element.scrollTop = element.scrollHeight;
  };
  useLayoutEffect(toEnd, [version, streams, wraps]);
  useEffect(() => {
    // Blocks have their real size only once they are seen.
    const observer = new ResizeObserver(toEnd);
    if (content.current) observer.observe(content.current);
    return () => observer.disconnect();
  }, []);
  const byUser = (): void => {
    userAt.current = performance.now();
  };
  const { log } = following;
  return (
    <section aria-label="Output">
      <div class="bar">
        <select
          aria-label="Streams"
          value={streams}
          onChange={(event) => setStreams(event.currentTarget.value as Streams)}
        >
          {CHOICES.map(([name, text]) => (
            <option key={name} value={name}>
              {text}
            </option>
          ))}
        </select>
        <label>
          <input
            type="checkbox"
            checked={wraps}
            onChange={(event) => setWraps(event.currentTarget.checked)}
          />{" "}
          Wrap lines
        </label>
      </div>
      <div
        ref={box}
        class={`log only-${streams} ${wraps ? "wraps" : ""}`}
        tabIndex={0}
        role="log"
        aria-live="off"
        aria-label="Output of the command"
        onWheel={byUser}
        onTouchMove={byUser}
        onKeyDown={byUser}
        onPointerDown={byUser}
        onScroll={(event) => {
          if (performance.now() - userAt.current > USER_MS) return;
          const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
          follows.current = scrollHeight - scrollTop - clientHeight < NEAR;
        }}
      >
        <div ref={content}>
          {(log.dropped > 0 || log.skipped > 0) && (
            <div class="note">
              {[
                log.dropped > 0 && `${number(log.dropped)} earlier lines`,
                log.skipped > 0 && bytes(log.skipped),
              ]
                .filter(Boolean)
                .join(" and ")}{" "}
              of the output are not shown here
            </div>
          )}
          {log.blocks.map((block) => (
            <BlockView key={block.id} block={block} version={block.version} />
          ))}
          {log.isEmpty && (
            <div class="note">{isOver ? "It printed nothing" : "Nothing printed so far"}</div>
          )}
        </div>
      </div>
      <Problem error={problem} />
    </section>
  );
}

/** Lines that are drawn again only when one of them changes. */
class BlockView extends Component<{ block: Block; version: number }> {
  override shouldComponentUpdate(next: { block: Block; version: number }): boolean {
    return next.block !== this.props.block || next.version !== this.props.version;
  }

  render(): JSX.Element {
    const { block } = this.props;
    return (
      <div class="block">
        {groups(block.lines).map((group, place) => (
          <GroupView key={place} group={group} />
        ))}
      </div>
    );
  }
}

/** Lines of one stream without colours are drawn as one text: that is most of what is printed. */
function groups(lines: Line[]): Line[][] {
  const found: Line[][] = [];
  for (const line of lines) {
    const last = found.at(-1);
    const before = last?.[0];
    if (last && before?.stream === line.stream && isPlain(before) && isPlain(line)) last.push(line);
    else found.push([line]);
  }
  return found;
}

function isPlain({ spans, cut, note }: Line): boolean {
  const [only, more] = spans;
  return !more && cut === 0 && !note && !(only?.classes || only?.color || only?.background);
}

function GroupView({ group }: { group: Line[] }): JSX.Element {
  const [line] = group;
  if (group.length === 1 && line) return <LineView line={line} />;
  const text = group.map(({ spans }) => spans[0]?.text ?? "").join("\n");
  // The newline at the end gives an empty last line its height.
  return <div class={line?.stream}>{`${text}\n`}</div>;
}

function LineView({ line }: { line: Line }): JSX.Element {
  if (line.note) return <div class={`note ${line.stream}`}>{line.note}</div>;
  return (
    <div class={line.stream}>
      {line.spans.map((span, place) => (
        <SpanView key={place} span={span} />
      ))}
      {line.cut > 0 && <span class="cut">… {number(line.cut)} more characters in this line</span>}
    </div>
  );
}

function SpanView({ span }: { span: Span }): JSX.Element {
  const { text, classes, color, background } = span;
  if (!classes && !color && !background) return <>{text}</>;
  const style: Record<string, string> = {};
  if (color) style["color"] = color;
  if (background) style["backgroundColor"] = background;
  return (
    <span class={classes} style={style}>
      {text}
    </span>
  );
}
