// Which view is shown: the fragment of the address, so that no server has to know of it.
import { Signal } from "./signal";

export interface Route {
  view: string;
  /** What stands behind the view's name: the id of a task. */
  rest: string;
}

function read(): Route {
  // What does not begin like this is the code of a sign-in link.
  if (!location.hash.startsWith("#/")) return { view: "", rest: "" };
  const [view = "", ...rest] = location.hash.slice(2).split("/");
  return { view, rest: rest.join("/") };
}

export const route = new Signal<Route>(read());

addEventListener("hashchange", () => {
  route.value = read();
  scrollTo(0, 0);
});
