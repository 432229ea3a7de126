// What of the page is on the screen.

/** Where that begins: below what stays at the top. */
function begins(): number {
  const fixed = document.querySelectorAll("header.top, .last-answer");
  return Math.max(0, ...[...fixed].map((it) => it.getBoundingClientRect().bottom));
}

/** Whether an element is on the screen, above this place: as much of it as fits into the half. */
export function isOnScreen(element: Element | null | undefined, ends = innerHeight): boolean {
  if (!element) return false;
  const { top, height } = element.getBoundingClientRect();
  const from = begins();
  // A pixel more or less is one of rounding.
  return top >= from - 1 && top + Math.min(height, (ends - from) / 2) <= ends + 1;
}
