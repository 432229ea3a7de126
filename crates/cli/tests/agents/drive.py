"""Drives real coding agents with a model that follows a script, after `legwork setup`.

    drive.py LEGWORK NODE_MODULES [AGENT...]

Each agent gets a home folder of its own. It is set up, calls our tool, gets its text, and has a denied
command denied; then once more after `setup --hooks`, through its own shell. In the end, `setup --remove`
has to leave its files as they were before.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from model import Model

PATIENCE_S = 180

# The rule that denies, in words of the configuration.
POLICY = 'excludeTools = ["run_shell_command(rm)"]\n'


class Agent:
    name = ""
    tool = ""
    shell = ""
    shell_input = "command"
    files = ()
    has_hooks = True
    rewrites = False
    has_switch = True

    def __init__(self, legwork, modules, folder):
        self.legwork = legwork
        self.program = str(modules / ".bin" / self.binary)
        self.home = folder / "home"
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        self.write(".config/legwork/config.toml", POLICY)
        self.write("precious/file", "kept")
        for name, text in self.files:
            self.write(name, text)

    def write(self, name, text):
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def environment(self, model):
        keep = {name: os.environ[name] for name in ("PATH", "LANG", "TERM") if name in os.environ}
        return {**keep, "HOME": str(self.home), "SHELL": "/bin/bash", "USER": "somebody", "NO_COLOR": "1",
                **self.variables(model.url)}

    def setup(self, *arguments):
        command = [self.legwork, "setup", self.name, *arguments]
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        done = subprocess.run(command, cwd=self.work, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done
        return done.stdout

    def run(self, steps, *more):
        """Lets the agent follow a script; returns what the model read after each step."""
        model = Model(steps)
        try:
            self.prepare(model.url)
            ran = subprocess.run([self.program, *self.arguments(), *more], cwd=self.work, stdin=subprocess.DEVNULL,
                                 env=self.environment(model), capture_output=True, text=True, timeout=PATIENCE_S)
        finally:
            model.close()
        read = [json.dumps(model.results.get(index)) for index in range(len(steps))]
        if os.environ.get("LEGWORK_AGENTS_DEBUG"):
            print(self.name, ran.returncode, ran.stdout[-3000:], ran.stderr[-3000:], model.unknown, file=sys.stderr)
            print([offer for offer in model.offered if offer][:1], read, file=sys.stderr)
        offered = {name for offer in model.offered for name in offer if name}
        return read, offered, ran

    def prepare(self, url):
        pass

    def variables(self, url):
        return {}

    def hook_options(self):
        return ()

    def own_shell(self, command):
        """A call of the agent's own shell."""
        return self.shell, {self.shell_input: command, "description": "x"}

    def call(self, *arguments):
        environment = {"HOME": str(self.home), "PATH": os.environ["PATH"]}
        done = subprocess.run([self.legwork, *arguments], cwd=self.work, env=environment, capture_output=True, text=True)
        return done.stdout

    def kept(self):
        """The client's files, byte for byte."""
        return {str(path): path.read_bytes() for path in self.own_files() if path.is_file()}

    def own_files(self):
        return [self.home / name for name in self.touched]


class ClaudeCode(Agent):
    name, binary = "claude-code", "claude"
    rewrites = True
    tool, shell = "mcp__legwork__ExecCommand", "Bash"
    touched = (".claude.json", ".claude/settings.json")
    files = ((".claude.json", '{\n  "hasCompletedOnboarding": true\n}\n'),
             (".claude/settings.json", '{\n  "env": {"A": "b"}\n}\n'))

    def arguments(self):
        return ["-p", "go", "--model", "claude-sonnet-4-5"]

    def variables(self, url):
        return {"SECRET_TOKEN": "correct-horse-battery", "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-scripted", "DISABLE_AUTOUPDATER": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


class Codex(Agent):
    name, binary = "codex", "codex"
    tool, shell, shell_input = "mcp__legwork.ExecCommand", "exec_command", "cmd"
    touched = (".codex/config.toml", ".codex/hooks.json")
    files = ((".codex/config.toml", '# mine\nmodel = "scripted"  # by script\n\n[tui]\ntheme = "x"\n'),)

    def arguments(self):
        provider = ("model_providers.scripted={name=\"scripted\", base_url=\"%s/v1\", wire_api=\"responses\", "
                    "env_key=\"SCRIPTED_KEY\"}" % self.url)
        return ["exec", "--skip-git-repo-check", "-c", provider, "-c", 'model_provider="scripted"',
                "--sandbox", "danger-full-access", "go"]

    def prepare(self, url):
        self.url = url

    def variables(self, _url):
        return {"SCRIPTED_KEY": "x"}

    def own_shell(self, command):
        return self.shell, {self.shell_input: command}

    def hook_options(self):
        return ("--dangerously-bypass-hook-trust",)


class Gemini(Agent):
    name, binary = "gemini", "gemini"
    tool, shell = "mcp_legwork_ExecCommand", "run_shell_command"
    touched = (".gemini/settings.json",)
    files = ((".gemini/settings.json", '{\n  "security": {\n    "auth": { "selectedType": "gemini-api-key" }\n  }\n}\n'),)

    def arguments(self):
        return ["-p", "go", "--approval-mode", "yolo", "-m", "gemini-2.5-flash"]

    def variables(self, url):
        return {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_NO_RELAUNCH": "true",
                "GEMINI_CLI_TRUST_WORKSPACE": "true"}


class OpenCode(Agent):
    name, binary = "opencode", "opencode"
    has_hooks = False
    tool, shell = "legwork_ExecCommand", "bash"
    touched = (".config/opencode/opencode.jsonc",)
    files = ((".config/opencode/opencode.jsonc", '{\n  // mine\n  "autoupdate": false, /* never */\n}\n'),)

    def prepare(self, url):
        provider = {"provider": {"scripted": {
            "npm": "@ai-sdk/openai-compatible", "name": "scripted", "models": {"scripted": {"name": "scripted"}},
            "options": {"baseURL": f"{url}/v1", "apiKey": "x"}}}, "model": "scripted/scripted"}
        (self.work / "opencode.json").write_text(json.dumps(provider))

    def arguments(self):
        return ["run", "go"]

    def variables(self, _url):
        return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1"}


class Copilot(Agent):
    name, binary = "copilot", "copilot"
    has_switch = False
    tool, shell = "legwork-ExecCommand", "bash"
    touched = (".copilot/mcp-config.json", ".copilot/hooks/legwork.json")
    files = ((".copilot/mcp-config.json", '{\n  "mcpServers": {}\n}\n'),)

    def arguments(self):
        return ["-p", "go", "--allow-all-tools"]

    def variables(self, url):
        return {"COPILOT_PROVIDER_BASE_URL": f"{url}/v1", "COPILOT_PROVIDER_API_KEY": "x", "COPILOT_MODEL": "scripted",
                "COPILOT_AUTO_UPDATE": "false"}


AGENTS = (ClaudeCode, Codex, Gemini, OpenCode, Copilot)


def check(holds, what, seen):
    if not holds:
        raise SystemExit(f"FAILED: {what}\n{seen}")
    print(f"  {what}")


def drive(kind, legwork, modules):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="legwork-agents-", dir=os.environ.get("LEGWORK_AGENTS_TMP")))
    agent = kind(legwork, modules, folder)
    version = subprocess.run([agent.program, "--version"], capture_output=True, text=True,
                             env={"PATH": os.environ["PATH"], "HOME": str(folder)}).stdout.splitlines()
    numbered = [line.strip() for line in version if any(character.isdigit() for character in line)]
    print(f"{agent.name}: {numbered[-1] if numbered else '?'}")
    precious = agent.home / "precious/file"
    delete = f"rm -rf {precious.parent}"

    # Some complete their own files at the first start.
    agent.run([])
    before = agent.kept()
    agent.setup()
    agent.setup("--remove")
    check(agent.kept() == before, "setup and --remove leave every byte as before", agent.kept())

    agent.setup()
    read, offered, ran = agent.run([(agent.tool, {"cmd": "echo marker-$((6*7))"}), (agent.tool, {"cmd": delete})])
    seen = (read, sorted(offered), ran)
    check("marker-42" in read[0], "the model calls our tool and reads its output", seen)
    check("denied by the rule" in read[1] and precious.exists(), "a denied command is denied", seen)

    if agent.has_hooks:
        agent.setup("--hooks")
        steps = [agent.own_shell(delete), (agent.tool, {"cmd": "echo marker-$((6*7))"})]
        read, offered, ran = agent.run(steps, *agent.hook_options())
        seen = (read, sorted(offered), ran)
        check(precious.exists(), "its own shell does not run a denied command", seen)
        check("Legwork" in read[0] and "denied by the rule" in read[0], "and the model reads why", seen)
        check("marker-42" in read[1], "our tool is still called", seen)
    if agent.rewrites:
        agent.setup("--hooks", "--rewrite")
        read, offered, ran = agent.run([agent.own_shell("echo marker-$((6*7)); env | grep SECRET_TOKEN")])
        seen = (read, sorted(offered), ran)
        check("marker-42" in read[0] and "[masked:SECRET_TOKEN]" in read[0], "a rewritten command is masked", seen)
        listed = agent.call("ps", "--json")
        check("marker-" in listed, "and is recorded as a task", listed)

    if agent.has_switch:
        agent.setup("--shell-off")
        read, offered, ran = agent.run([(agent.tool, {"cmd": "echo marker-$((6*7))"})])
        seen = (read, sorted(offered), ran)
        check(agent.shell not in offered, "its own shell can be switched off", seen)
        check("marker-42" in read[0], "and our tool is called", seen)

    written = agent.kept()
    agent.setup("--remove")
    now = agent.kept()
    left = {name: data for name, data in now.items() if b"legwork" in data}
    check(not left, "--remove leaves nothing of ours", left)
    for name in sorted({**now, **before}):
        shown = pathlib.Path(name).relative_to(agent.home)
        if now.get(name) == before.get(name):
            print(f"  {shown}: every byte as before the first setup")
            continue
        # The agent has written its own file meanwhile.
        kept, was = json.loads(now[name]), json.loads(written[name])
        was["mcpServers"].pop("legwork")
        check(kept == was, f"{shown}: the agent has changed it; nothing but ours is gone", (kept, was))
    shutil.rmtree(folder, ignore_errors=True)


def main():
    legwork, modules, *names = sys.argv[1:]
    for kind in AGENTS:
        if not names or kind.name in names:
            drive(kind, os.path.abspath(legwork), pathlib.Path(modules).absolute())


if __name__ == "__main__":
    main()
