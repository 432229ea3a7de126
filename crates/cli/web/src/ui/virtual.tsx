// A long list of rows of one height: only those that can be seen are in the document.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** Rows above and below what can be seen, for quick scrolling. */
const MARGIN = 12;

interface Given<T> {
  items: readonly T[];
  /** The height of a row, in pixels. */
  height: number;
  label: string;
  head: JSX.Element;
  row: (item: T, place: number) => JSX.Element;
  keyOf: (item: T) => string;
  /** Called when the end comes near. */
  onEnd: () => void;
}

export function VirtualTable<T>(given: Given<T>): JSX.Element {
  const { items, height, label, head, row, keyOf, onEnd } = given;
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ from: 0, to: 40 });
  const look = (): void => {
    const element = box.current;
    if (!element) return;
    const from = Math.max(0, Math.floor(element.scrollTop / height) - MARGIN);
    const to = Math.ceil((element.scrollTop + element.clientHeight) / height) + MARGIN;
    setSeen((old) => (old.from === from && old.to === to ? old : { from, to }));
  };
  useLayoutEffect(look, [items.length, height]);
  useEffect(() => {
    const observer = new ResizeObserver(look);
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, [height]);
  useEffect(() => {
    if (seen.to + 100 >= items.length) onEnd();
  }, [seen.to, items.length]);
  const shown = items.slice(seen.from, seen.to);
  return (
    <div class="table" role="table" aria-label={label} aria-rowcount={items.length + 1}>
      <div role="rowgroup" class="head">
        {head}
      </div>
      <div role="rowgroup" class="body" ref={box} onScroll={look} tabIndex={0} aria-label={label}>
        <div role="presentation" class="room" style={{ height: `${items.length * height}px` }}>
          {shown.map((item, offset) => (
            <div
              key={keyOf(item)}
              role="row"
              aria-rowindex={seen.from + offset + 2}
              class="row"
              style={{ height: `${height}px`, top: `${(seen.from + offset) * height}px` }}
            >
              {row(item, seen.from + offset)}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}
