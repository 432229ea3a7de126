"""More checks of `legwork.exe` under wine: what is left running, rules, the verbs that people use, `serve`, a real program.

Each check is a function, named for what holds; `windows_session.py` runs them.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator

from windows_scene import WINE, Scene, call, expect, expect_in, hex_lines, linux, task_of, until, windows

# A real program for Windows that runs under wine, where it could be had: `.ci/windows client` looks for it.
NODE = os.environ.get("LEGWORK_NODE", "")

# What only a person on Linux could follow.
LINUX_ONLY = ("chmod", "/tmp", "xdg-open", "kernel", "namespace is", "~/.")


async def what_start_leaves_running_is_stopped_with_its_task(scene: Scene, rounds: int) -> None:
    """`start /b`: the answer does not wait, has no pids and the task, by which all that is left can be stopped; it outlives its session."""
    for number in range(min(rounds, 20)):
        up = scene.folder / f"background-{number}"
        up.mkdir()
        async with scene.session() as session:
            line = f"start /b {scene.portable} tree {windows(up)} 1 & echo hi& exit 4"
            ran = json.loads((await call(session, "run_shell_command", command=line))["text"])
            expect((ran["stdout"], ran["exitCode"], ran.get("backgroundPids")), ("hi\r\n", 4, None), line)
            task = ran["taskId"]
            await until(lambda: len(list(up.glob("up-*"))) == 3, "what was started")
            expect_in("background", (await call(session, "TaskStatus", task_id=task))["text"].lower())
        expect(len(scene.pids(f"background-{number}")) > 0, True, "that it outlives its session")
        async with scene.session() as session:
            stopped = await call(session, "TaskStop", task_id=task, grace_ms=number % 2 * 1000)
            expect(stopped["is_error"], False, stopped["text"])
            await until(lambda: not scene.pids(f"background-{number}"), f"the end of {number}")


async def what_is_printed_after_the_answer_is_kept(scene: Scene, _rounds: int) -> None:
    """What `start /b` has started goes on printing into the output of its task."""
    async with scene.session() as session:
        line = f"start /b {scene.portable} lines 8 100 0"
        ran = json.loads((await call(session, "run_shell_command", command=line))["text"])
        wanted = b"".join(b"line %d\n" % number for number in range(8))
        await until(lambda: scene.run("logs", "--raw", ran["taskId"]).stdout == wanted, "all of it")


async def a_file_of_the_current_folder_is_not_the_program_that_is_allowed(scene: Scene, _rounds: int) -> None:
    """A rule that allows `ipconfig` allows that of the system, and no `ipconfig.bat` of the workspace; nor does anything find that on PATH."""
    policy = scene.folder / "policy.toml"
    policy.write_text('coreTools = ["run_shell_command(ipconfig)"]\nexcludeTools = ["run_shell_command(hostname)"]\n')
    def asked(command: str, **more: object) -> subprocess.CompletedProcess:
        given = json.dumps({"command": command, **more})
        return scene.run("call", "run_shell_command", given, "--tools", "all", "--policy", windows(policy))
    expect(asked("IPConfig.exe").returncode, 0, "the program of the system")
    (scene.work / "ipconfig.bat").write_text("@echo planted\r\n")
    for command in ("ipconfig", "IPCONFIG.EXE", "ipconfig.bat"):
        answer = asked(command)
        expect((answer.returncode, b"planted" in answer.stdout), (126, False), command)
        expect_in("current-folder", answer.stdout.decode() + answer.stderr.decode())
    for command in ("hostname", "HostName.EXE", "hostname.exe.", "C:\\windows\\system32\\HOSTNAME.exe", "echo a & hostname"):
        denied = asked(command)
        expect(denied.returncode, 126, command)
        expect_in("denied", denied.stdout.decode() + denied.stderr.decode())
    direct = scene.run("run", "--sandbox", "none", "--", "ipconfig")
    expect((direct.returncode, b"planted" in direct.stdout), (0, False), "a program by its name")


async def folders_are_refused_with_a_word(scene: Scene, _rounds: int) -> None:
    """Devices, drives alone, streams, other machines; short names and dots at the end lead where Windows says."""
    (scene.work / "a folder with a long name").mkdir()
    (scene.work / "file").write_text("x")
    async with scene.session() as session:
        for workdir, word in [
            ("NUL", "device"), ("con.txt", "device"), ("\\\\.\\C:\\", "device"), ("\\\\?\\GLOBALROOT\\x", "device"), ("C:", "drive"),
            ("Z:work", "drive"), ("file:stream", "stream"), ("file", "no folder"), ("\\\\nowhere\\share\\x", "outside"),
            ("\\\\?\\UNC\\nowhere\\share", "outside"), ("//nowhere/share", "outside"), ("\\\\localhost\\C$\\windows", "outside"),
            ("\\\\?\\C:\\windows", "outside"), ("\\", "outside"), ("no such folder", "not exist"),
        ]:
            refused = await call(session, "ExecCommand", cmd="echo hi", workdir=workdir)
            expect((refused["is_error"], word in refused["text"]), (True, True), f"{workdir}: {refused['text']}")
        for directory in ("\\x", "C:\\windows", "\\\\nowhere\\share"):
            expect_in("absolute", (await call(session, "run_shell_command", command="cd", directory=directory))["text"])
        for cwd in ("C:\\windows", "\\\\?\\C:\\windows", "c:/windows"):
            ran = json.loads((await call(session, "execute_command", command="cmd", args=["/c", "cd"], cwd=cwd))["text"])
            expect(ran["stdout"].lower(), "c:\\windows\r\n", cwd)
        for workdir in ("a folder with a long name.", "AFOLDE~1"):
            answer = await call(session, "ExecCommand", cmd=f"{scene.portable} folder", workdir=workdir)
            # Whether there are short names at all depends on the disk.
            if not answer["is_error"]:
                expect_in(windows(scene.work / "a folder with a long name").encode().hex(), answer["text"])


async def people_find_their_way(scene: Scene, _rounds: int) -> None:
    """The verbs of a person, one after another: what they say is about Windows."""
    said = []
    def run(*words: str) -> str:
        ran = scene.run(*words)
        said.append(ran.stdout.decode() + ran.stderr.decode())
        return said[-1]
    expect_in("not enforced here: commands may write everywhere", run("doctor"))
    expect_in("ask", run("policy", "check", "echo %PATH%"))
    plain = ("call", "run_shell_command", json.dumps({"command": "ipconfig /all"}), "--tools", "all")
    question = next(word.strip('",') for word in run(*plain).split() if word.startswith('"a_'))
    # The rule names the workspace by its drive.
    expect_in("Allowed", run("approve", question, "--rule"))
    for _ in range(2):
        expect(scene.run(*plain).returncode, 0, "what the rule allows")
    refused = run("sh", "echo hi & exit 4")
    question = next(word for word in refused.split() if word.startswith("a_"))
    expect_in("echo hi & exit 4", run("approvals"))
    expect_in("echo hi", run("approvals", question))
    expect_in("Allowed once", run("approve", question))
    expect_in("hi", run("sh", "echo hi & exit 4"))
    expect_in("no-such-program", run("run", "--", "no-such-program"))
    expect_in("echo hi", run("ps"))
    expect_in("Exit status", run("show", "@"))
    expect_in("hi", run("logs"))
    expect_in("hi", run("logs", "-f"))
    expect_in("exit", run("wait", "@").lower())
    expect_in("Nothing to stop", run("stop", "@"))
    expect_in("none changed", run("audit", "verify"))
    expect_in("Windows", run("top"))
    expect_in("Windows", run("acp", "--", "x"))
    expect_in("Windows", run("serve", "--listen", "unix:/x"))
    expect_in("deleted", run("gc").lower().replace("nothing", "deleted"))
    for text in said:
        for word in LINUX_ONLY:
            expect(word in text, False, f"{word!r} in {text!r}")


async def a_running_command_is_followed_and_stopped_by_its_person(scene: Scene, _rounds: int) -> None:
    """`logs -f` ends with the command, `wait` has its code, `stop` ends one; all from other processes than the one that has started it."""
    async with scene.session() as session:
        task = task_of(await call(session, "ExecCommand", cmd=f"{scene.portable} lines 20 100 6", yield_time_ms=50))
        expect_in(task[:6], scene.run("ps").stdout.decode())
        followed = scene.run("logs", "-f", task)
        expect(followed.stdout.replace(b"\r\n", b"\n"), b"".join(b"line %d\n" % number for number in range(20)), "what was followed")
        expect(scene.run("wait", task).returncode, 6, "the code that `wait` passes on")
        up = scene.folder / "stopped"
        up.mkdir()
        task = task_of(await call(session, "ExecCommand", cmd=f"{scene.portable} tree {windows(up)} 1", yield_time_ms=50))
        await until(lambda: len(list(up.glob("up-*"))) == 3, "a tree")
        expect(scene.run("stop", task).returncode, 0, "stop")
        await until(lambda: not scene.pids("stopped"), "its end")


@contextlib.contextmanager
def serving(scene: Scene) -> Iterator[str]:
    """A server over HTTP: where it is."""
    words = ["serve", "--listen", "127.0.0.1:0", "--mode", "open", "--workspace", windows(scene.work), "--state", windows(scene.folder / "state")]
    with (scene.folder / "serve.log").open("wb") as log:
        server = subprocess.Popen([WINE, "run", scene.program, *words], stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL)
        try:
            yield server.stdout.readline().decode().strip()
        finally:
            scene.kill(" serve ")
            server.wait(30)


def ask(url: str, token: str = "", body: dict | None = None) -> tuple[int, str]:
    """A request over HTTP: its status and its text."""
    headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    if token:
        headers["authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def serve_works_as_anywhere(scene: Scene, _rounds: int) -> None:
    """Health, the page, a token, a call, its output, a stop, MCP; the file of the tokens is its user's alone, wherever it is."""
    with serving(scene) as url:
        expect(ask(f"{url}/healthz"), (200, "ok\n"), "health")
        status, page = ask(f"{url}/")
        expect((status, "<!doctype html>" in page), (200, True), "the page")
        expect(ask(f"{url}/api/v1/tasks")[0], 401, "without a token")
        token = next(word for word in scene.run("token", "add", "me", "--role", "operator").stdout.decode().split() if word.startswith("lwt_"))
        status, answer = ask(f"{url}/api/v1/tasks", token, {"cmd": "echo hi& exit 3"})
        expect((status, json.loads(answer)["exit_status"], json.loads(answer)["stdout_preview"]), (200, 3, "hi"), answer)
        up = scene.folder / "served"
        up.mkdir()
        answer = json.loads(ask(f"{url}/api/v1/tasks", token, {"cmd": f"{scene.portable} tree {windows(up)} 1", "yield_time_ms": 50})[1])
        task = answer["task_handle"]["task_id"]
        await until(lambda: len(list(up.glob("up-*"))) == 3, "a tree")
        expect(ask(f"{url}/api/v1/tasks/{task}/stop", token, {})[0], 200, "a stop")
        await until(lambda: not scene.pids("served"), "its end")
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        expect_in("serverInfo", ask(f"{url}/mcp", token, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})[1])
    elsewhere = scene.folder / "elsewhere.json"
    made = scene.run("token", "add", "me", "--role", "operator", "--token-file", windows(elsewhere))
    expect(made.returncode, 0, made.stderr.decode())
    # Wine gives the rights of others to the file of the host.
    for path in (elsewhere, scene.folder / "state"):
        expect(path.stat().st_mode & 0o007, 0, f"what others may do with {path.name}")


async def a_real_program_is_run_as_it_wants(scene: Scene, rounds: int) -> None:
    """Node for Windows: its arguments, its input, a polite stop that it hears, and the end of what it has started."""
    if not NODE:
        print("SKIPPED node for Windows is not to be had here", flush=True)
        return
    node, script = windows(NODE), scene.work / "script.js"
    words = ["two words", 'a"b', "c:\\my dir\\", "%PATH%", "käse", "日本語", "", "a & b", "*"]
    async with scene.session() as session:
        shown = "process.argv.slice(1).forEach(it => console.log(Buffer.from(it).toString('hex')))"
        ran = json.loads((await call(session, "execute_command", command=node, args=["-e", shown, *words]))["text"])
        expect(ran["stdout"], hex_lines(words), "its arguments")
        script.write_text("process.stdin.on('data', it => process.stdout.write(it.toString().toUpperCase()))")
        task = task_of(await call(session, "ExecCommand", cmd=f"{node} script.js", accepts_input=True, yield_time_ms=200))
        await call(session, "TaskInput", task_id=task, input="hällo\n", eof=True)
        await call(session, "TaskWait", task_ids=[task], timeout_ms=30_000)
        expect_in("HÄLLO", (await call(session, "TaskOutput", task_id=task, after="start"))["text"])
        for number in range(min(rounds, 5)):
            up = scene.folder / f"node-{number}"
            up.mkdir()
            script.write_text(
                "const {spawn} = require('child_process'); process.on('SIGINT', () => { console.log('asked to stop'); process.exit(9) });"
                f"spawn({json.dumps(scene.portable)}, ['tree', {json.dumps(windows(up))}, '1']); setInterval(() => {{}}, 1000)")
            task = task_of(await call(session, "ExecCommand", cmd=f"{node} script.js", yield_time_ms=50, duplicate_policy="start_new"))
            await until(lambda: len(list(up.glob("up-*"))) == 3, "what it has started")
            stopped = await call(session, "TaskStop", task_id=task, grace_ms=5000)
            expect(stopped["is_error"], False, stopped["text"])
            await until(lambda: not scene.pids(f"node-{number}"), "the end of all")
            expect_in("asked to stop", (await call(session, "TaskOutput", task_id=task, after="start"))["text"])


CHECKS = [
    what_start_leaves_running_is_stopped_with_its_task,
    what_is_printed_after_the_answer_is_kept,
    a_file_of_the_current_folder_is_not_the_program_that_is_allowed,
    folders_are_refused_with_a_word,
    people_find_their_way,
    a_running_command_is_followed_and_stopped_by_its_person,
    serve_works_as_anywhere,
    a_real_program_is_run_as_it_wants,
]
