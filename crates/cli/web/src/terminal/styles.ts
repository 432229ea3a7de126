// Style sheets without <style> elements: those are forbidden by the Content-Security-Policy of the
// page, constructed style sheets are not. The build puts this into the place of the elements that
// xterm.js makes.

/** An element that has the text of a style sheet, as a <style> element has it, but is not one. */
export function styleHolder(): HTMLElement {
  const holder = document.createElement("span");
  holder.hidden = true;
  const sheet = new CSSStyleSheet();
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  let text = "";
  Object.defineProperty(holder, "textContent", {
    get: () => text,
    set: (next: string) => {
      text = next;
      sheet.replaceSync(next);
    },
  });
  holder.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((it) => it !== sheet);
    Element.prototype.remove.call(holder);
  };
  return holder;
}

/** Adopts a style sheet for good. */
export function adopt(text: string): void {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(text);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
}
