// Signs in, then lists the open questions and the newest tasks, and answers questions.

const find = (id) => document.getElementById(id);

async function ask(method, path, body, headers = {}) {
  const response = await fetch(`api/v1/${path}`, {
    method,
    headers: { "X-Legwork": "1", "Content-Type": "application/json", ...headers },
    body: body && JSON.stringify(body),
  });
  const result = await response.json();
  if (!response.ok) {
    throw Object.assign(new Error(result.error.message), { status: response.status });
  }
  return result;
}

function element(name, text, ...children) {
  const made = document.createElement(name);
  made.textContent = text;
  made.append(...children);
  return made;
}

function question(it, role) {
  const item = element("li", "", element("pre", it.text));
  for (const decision of role === "operator" ? it.replies : []) {
    const button = element("button", decision.replaceAll("_", " "));
    button.onclick = () =>
      ask("POST", `questions/${it.approval_id}/answer`, { decision }).then(refresh, failed);
    item.append(button);
  }
  return item;
}

let role;

async function refresh() {
  const tasks = await ask("GET", "tasks?limit=50");
  find("tasks").replaceChildren(
    ...tasks.tasks.map((task) =>
      element("tr", "", ...["task_id", "status", "command"].map((it) => element("td", task[it]))),
    ),
  );
  if (role !== "agent") {
    const { questions } = await ask("GET", "questions");
    find("questions").replaceChildren(...questions.map((it) => question(it, role)));
    document.title = questions.length ? `(${questions.length}) Legwork` : "Legwork";
  }
}

function failed(error) {
  find("state").textContent = error.message;
  find("in").hidden = error.status !== 401;
  find("all").hidden = error.status === 401;
}

async function begin() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    history.replaceState(null, "", location.pathname);
    await ask("POST", "session", { code });
  }
  const session = await ask("GET", "session");
  role = session.role;
  find("state").textContent = `Signed in as ${role}`;
  find("in").hidden = true;
  find("all").hidden = find("out").hidden = false;
  const answering = role === "operator" ? "?answering=true" : "";
  const events = new EventSource(`api/v1/events${answering}`);
  const kinds = ["following", "lagged", "task_started", "task_ended"];
  for (const kind of [...kinds, "question_opened", "question_answered", "question_expired"]) {
    events.addEventListener(kind, () => refresh().catch(failed));
  }
}

find("in").onsubmit = (event) => {
  event.preventDefault();
  const token = find("token").value;
  find("token").value = "";
  ask("POST", "session", {}, { Authorization: `Bearer ${token}` }).then(begin).catch(failed);
};
find("out").onclick = () => ask("DELETE", "session").then(() => location.reload(), failed);
begin().catch(failed);
