#!/usr/bin/env python3
"""Drives `legwork.exe` under wine: what a model sees over MCP, what a person sees, kills and adoption.

`windows_session.py PROGRAMS [ROUNDS] [NAME]`: run by `.ci/windows session`, which has the client of MCP in an environment of its own.
PROGRAMS is the folder of legwork.exe and portable.exe; ROUNDS is how often whatever kills something is repeated; NAME is a part of
the names of the checks to run. Each check is a function below, named for what holds.
"""

import asyncio
import json
import subprocess
import sys
import time

import windows_people
from windows_scene import WINE, Scene, call, expect, expect_in, hex_lines, linux, task_of, until, windows

# Words that some reader on the way could take for something else.
WORDS = [
    "plain", "", "two words", "tab\there", '"', 'a"b', '"quoted"', "\\", "c:\\dir\\", "c:\\my dir\\", 'x\\"y', "\\\\\\", '\\\\" ', "%PATH%", "100%", "%",
    "^", "&", "a & b", "|", "<in", ">out", "(x)", "!x!", "'single'", "`tick`", "$HOME", "$(x)", "*", "*.txt", "~", "-", "--", "/?", "@file", "{a,b}", "[x]",
    "käse", "日本語", "\U0001f980 crab", "e\u0301", "line\nbreak", ";", ",", "=", "#",
]


async def the_tools_of_a_whole_session(scene: Scene, _rounds: int) -> None:
    """Every tool, in one session of the Python client."""
    async with scene.session() as session:
        tools = {tool.name for tool in (await session.list_tools()).tools}
        expect({"ExecCommand", "execute_command", "run_shell_command", "TaskStop"} - tools, set(), "missing tools")
        ran = json.loads((await call(session, "run_shell_command", command="echo hi& exit 3"))["text"])
        expect((ran["stdout"], ran["exitCode"]), ("hi\r\n", 3), "run_shell_command")
        executed = json.loads((await call(session, "execute_command", command="cmd.exe", args=["/d", "/c", "echo a b"]))["text"])
        expect((executed["stdout"], executed["return_code"]), ("a b\r\n", 0), "execute_command")
        answer = await call(session, "ExecCommand", cmd="echo out& echo err 1>&2& exit 7")
        for part in ("code 7", "out", "err"):
            expect_in(part, answer["text"])
        promoted = await call(session, "ExecCommand", cmd=f"{scene.portable} copy", accepts_input=True, yield_time_ms=300)
        task = task_of(promoted)
        await call(session, "TaskInput", task_id=task, input="one\r\ntwo\r\n")
        met = await call(session, "TaskWait", task_ids=[task], until={"output_matches": "two"}, timeout_ms=30_000)
        expect(met["is_error"], False, met["text"])
        expect_in("running", (await call(session, "TaskStatus", task_id=task))["text"].lower())
        expect_in(task, (await call(session, "TaskList"))["text"])
        await call(session, "TaskInput", task_id=task, eof=True)
        ended = await call(session, "TaskWait", task_ids=[task], timeout_ms=30_000)
        expect(ended["is_error"], False, ended["text"])
        expect_in("two", (await call(session, "TaskOutput", task_id=task, after="start"))["text"])


async def what_a_command_prints_is_kept_exactly(scene: Scene, _rounds: int) -> None:
    """`legwork.exe call run_shell_command`: exit code, stdout and the stored bytes, with CR and LF."""
    for command, stdout, code in [("echo hi & exit 3", "hi \r\n", 3), ("echo hi& exit 3", "hi\r\n", 3), ("exit 300000", "", 300_000)]:
        ran = scene.run("call", "run_shell_command", json.dumps({"command": command}), "--mode", "open", "--tools", "all")
        answer = json.loads(ran.stdout)
        expect((answer["stdout"], answer["exitCode"], answer.get("backgroundPids")), (stdout, code, None), command)
        expect(scene.run("logs", "--raw").stdout, stdout.encode(), f"the stored bytes of {command}")
        expect(ran.stderr, b"", "complaints")


async def arguments_arrive_byte_for_byte(scene: Scene, _rounds: int) -> None:
    """execute_command hands every argument to a program as it is, or to a batch file, or refuses."""
    async with scene.session() as session:
        ran = json.loads((await call(session, "execute_command", command=scene.portable, args=["arguments", *WORDS]))["text"])
        expect(ran["stdout"], hex_lines(WORDS), "arguments of a program")
        folder = scene.work / "a folder (x86) & more"
        folder.mkdir(exist_ok=True)
        (folder / "batch file.cmd").write_text(f"@{scene.portable} arguments %*\r\n")
        batch = windows(folder / "batch file.cmd")
        words = ["plain", "two words", "a & echo injected", "x|y", "<in", ">out", "^", "^^", "(x)", "käse", "日本", "a=b", "a,b", "a;b", "!x!"]
        ran = json.loads((await call(session, "execute_command", command=batch, args=words))["text"])
        expect(ran["stdout"], hex_lines(words), "arguments of a batch file")
        refused = json.loads((await call(session, "execute_command", command=batch, args=["line\nbreak"]))["text"])
        expect(refused["return_code"], None, "a line break for a batch file")


async def what_cannot_be_done_is_refused_with_a_word(scene: Scene, _rounds: int) -> None:
    """Substitutions, signals, terminals, programs and shells that are not there, text that cmd would cut."""
    async with scene.session() as session:
        for command in ("for /f %i in ('dir') do echo %i", "echo $(whoami)"):
            refused = await call(session, "run_shell_command", command=command)
            expect(refused["is_error"], True, command)
            expect_in("substitution", refused["text"])
        expect_in("Windows has no others", (await call(session, "TaskStop", task_id="x", signal="USR1"))["text"])
        missing = json.loads((await call(session, "execute_command", command="no-such-program"))["text"])
        expect(missing["return_code"], None, "a program that is not there")
        expect_in("pwsh", (await call(session, "ExecCommand", cmd="echo hi", shell="pwsh"))["text"])
        expect_in("bash", (await call(session, "ExecCommand", cmd="echo hi", shell="bash"))["text"])
        lines = await call(session, "ExecCommand", cmd="echo a\necho b", shell="cmd")
        expect_in("one line", lines["text"])
        long = await call(session, "ExecCommand", cmd="echo " + "x" * 9000, shell="cmd")
        expect_in("8191", long["text"])


async def a_shell_is_found_and_gets_its_script_as_it_is(scene: Scene, _rounds: int) -> None:
    """powershell, pwsh and Git's bash: stand-ins tell what they were given, since wine has none of them."""
    script = 'Write-Output "a  b" \'c\'; $x = 1\nif ($x) { echo "%PATH%" } # \\"käse\\" \\\\'
    folder, git = scene.folder / "shells", scene.folder / "Git"
    for path in (folder, git / "cmd", git / "bin"):
        path.mkdir(parents=True)
    portable = linux(scene.portable).read_bytes()
    for path in (folder / "pwsh.exe", folder / "powershell.exe", git / "bin" / "bash.exe", git / "cmd" / "git.exe"):
        path.write_bytes(portable)
    async with scene.session(f"{windows(folder)};{windows(git / 'cmd')}") as session:
        for shell, login, words in [
            ("pwsh", False, ["-NoProfile", "-NonInteractive", "-Command"]),
            ("powershell", True, ["-NonInteractive", "-Command"]),
            (windows(folder / "PWSH.EXE"), False, ["-NoProfile", "-NonInteractive", "-Command"]),
            ("bash", False, ["-c", "--"]),
            ("bash.exe", True, ["-lc", "--"]),
        ]:
            answer = await call(session, "ExecCommand", cmd=script, shell=shell, login=login)
            expect_in(hex_lines([*words, script]), answer["text"] + "\n")


async def a_command_can_have_a_terminal(scene: Scene, rounds: int) -> None:
    """Typing, the screen, an exit code, and the end of a tree that is on one."""
    async with scene.session() as session:
        for number in range(min(rounds, 20)):
            started = await call(session, "ExecCommand", cmd=f"{scene.portable} console", tty=True, accepts_input=True, yield_time_ms=100,
                                 duplicate_policy="start_new")
            task = task_of(started)
            await call(session, "TaskInput", task_id=task, input="hällo\r")
            met = await call(session, "TaskWait", task_ids=[task], until={"output_matches": "got .hällo"}, timeout_ms=20_000)
            screen = (await call(session, "TaskOutput", task_id=task, view="screen"))["text"]
            expect_in("terminal true true", screen)
            expect_in("got [hällo]", screen + met["text"])
            await call(session, "TaskInput", task_id=task, input=f"quit {number + 5}\r")
            await call(session, "TaskWait", task_ids=[task], timeout_ms=20_000)
            expect_in(f"Exit status: {number + 5}\n", (await call(session, "TaskOutput", task_id=task))["text"])
            up = scene.folder / f"tty-{number}"
            up.mkdir()
            started = await call(session, "ExecCommand", cmd=f"{scene.portable} tree {windows(up)} 2", tty=True, yield_time_ms=50)
            await until(lambda: len(list(up.glob("up-*"))) == 4, "a tree")
            stopped = await call(session, "TaskStop", task_id=task_of(started), grace_ms=500)
            expect(stopped["is_error"], False, stopped["text"])
            await until(lambda: not scene.pids(f"tty-{number}"), f"the end of tree {number}")


async def folders_are_named_in_every_way(scene: Scene, _rounds: int) -> None:
    """Drive letters, both slashes, names with spaces and other letters; `..` and other machines do not lead out, too long ones are refused."""
    name = "a folder käse"
    deep = scene.work / name / "/".join(["deep" * 12] * 6)
    deep.mkdir(parents=True)
    async with scene.session() as session:
        for workdir, wanted in [
            (None, scene.work),
            (windows(scene.work / name), scene.work / name),
            (windows(scene.work / name).replace("\\", "/"), scene.work / name),
            (name, scene.work / name),
            (windows(scene.work / name).replace("Z:", "z:"), scene.work / name),
            ("\\\\?\\" + windows(scene.work / name), scene.work / name),
        ]:
            more = {} if workdir is None else {"workdir": workdir}
            answer = await call(session, "ExecCommand", cmd=f"{scene.portable} folder", **more)
            expect_in(windows(wanted).encode().hex(), answer["text"])
        expect_in("258", (await call(session, "ExecCommand", cmd="echo hi", workdir=windows(deep)))["text"])
        for workdir in ("..", windows(scene.folder), "C:\\windows", "\\\\server\\share"):
            refused = await call(session, "ExecCommand", cmd="echo hi", workdir=workdir)
            expect(refused["is_error"], True, f"{workdir}: {refused['text']}")


async def a_flood_is_stored_whole(scene: Scene, _rounds: int) -> None:
    """Long output is in a file, byte for byte."""
    wanted = b"".join(b"%015d\n" % line for line in range(1 << 18))
    async with scene.session() as session:
        answer = await call(session, "ExecCommand", cmd=f"{scene.portable} flood {len(wanted)}", yield_time_ms=60_000)
        path = next(line for line in answer["text"].splitlines() if line.endswith("stdout") and line.startswith("Z:"))
        expect(linux(path).read_bytes() == wanted, True, "the artifact")


async def the_server_prints_nothing_else(scene: Scene, _rounds: int) -> None:
    """Only JSON on stdout, and nothing on stderr. That nothing is said there holds for every other session, too."""
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}}
    ran = scene.run("mcp", given=json.dumps(hello).encode() + b"\n")
    lines = ran.stdout.splitlines()
    expect([json.loads(line)["id"] for line in lines], [1], "answers")
    expect(ran.stdout.endswith(b"}\n"), True, "the end of the line")
    expect(ran.stderr, b"", "complaints")


async def state_is_in_the_local_folder_of_the_user(scene: Scene, _rounds: int) -> None:
    """Without a word about it, state is below LOCALAPPDATA; two processes at once share it."""
    where = scene.run("doctor", "--json", state=False)
    expect_in("AppData\\\\Local\\\\legwork", where.stdout.decode())
    line = [WINE, "run", scene.program, "run", "--sandbox", "none", "--", scene.portable, "lines", "3", "10", "0"]
    several = [subprocess.Popen(line, cwd=scene.work, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(6)]
    for one in several:
        out, err = one.communicate(timeout=120)
        expect((one.returncode, out, err), (0, b"line 0\nline 1\nline 2\n", b""), "one of six")
    listed = scene.run("audit", "verify", state=False)
    expect(listed.returncode, 0, listed.stderr.decode() + listed.stdout.decode())


async def the_doctor_finds_nothing_wrong(scene: Scene, _rounds: int) -> None:
    """The machine is examined as anywhere, and the layers that Windows lacks are named."""
    examined = scene.run("doctor")
    expect(examined.returncode, 0, examined.stdout.decode())
    for part in ("runs, and its output arrives", "landlock", "not on Windows yet"):
        expect_in(part, examined.stdout.decode())


async def ctrl_c_ends_a_run_and_its_tree(scene: Scene, rounds: int) -> None:
    """Ctrl-C in `legwork run`: it is pressed on the console of a warden, in which that runs as its command."""
    async with scene.session() as session:
        for number in range(min(rounds, 20)):
            inner = windows(scene.folder / "inner")
            up = scene.folder / f"ctrl-{number}"
            up.mkdir()
            line = f"{windows(scene.program)} run --state {inner} --sandbox none -- {scene.portable} tree {windows(up)} 1"
            promoted = await call(session, "ExecCommand", cmd=line, yield_time_ms=100)
            await until(lambda: len(list(up.glob("up-*"))) == 3, "a tree")
            stopped = await call(session, "TaskStop", task_id=task_of(promoted), signal="INT", grace_ms=60_000)
            expect(stopped["is_error"], False, stopped["text"])
            await until(lambda: not scene.pids(f"ctrl-{number}"), "the end of the tree")
            shown = json.loads(scene.run("show", "@", "--json", "--state", inner).stdout)
            expect(shown["status"] in ("cancelled", "failed"), True, str(shown))


async def a_killed_server_loses_nothing(scene: Scene, rounds: int) -> None:
    """A server is killed hard while a promoted command runs; the next one adopts it, and has its output and its code."""
    for number in range(rounds):
        async with scene.session() as session:
            answer = await call(session, "ExecCommand", cmd=f"{scene.portable} lines 12 100 {number + 5}", yield_time_ms=100 + number % 7 * 20)
            task = task_of(answer)
            expect(scene.kill(" mcp ") > 0, True, "servers")
        async with scene.session() as session:
            ended = await call(session, "TaskWait", task_ids=[task], timeout_ms=60_000)
            output = await call(session, "TaskOutput", task_id=task, after="start")
            expect_in(f"Exit status: {number + 5}\n", output["text"])
            lines = [line for line in (output["text"] + "\n" + ended["text"]).splitlines() if line.startswith("line ")]
            expect(sorted(set(lines)), sorted(f"line {line}" for line in range(12)), f"round {number}: {output['text']}")
        stored = scene.run("logs", "--raw", task).stdout
        expect(stored, b"".join(b"line %d\n" % line for line in range(12)), "the stored bytes")


async def a_stopped_tree_is_gone(scene: Scene, rounds: int) -> None:
    """Grandchildren that outlive their parents are gone after TaskStop, with grace and without."""
    async with scene.session() as session:
        for number in range(rounds):
            up = scene.folder / f"tree-{number}"
            up.mkdir()
            promoted = await call(session, "ExecCommand", cmd=f"{scene.portable} tree {windows(up)} 2", yield_time_ms=50)
            await until(lambda: len(list(up.glob("up-*"))) == 4, "a tree")
            stopped = await call(session, "TaskStop", task_id=task_of(promoted), grace_ms=number % 2 * 2000)
            expect(stopped["is_error"], False, stopped["text"])
            # The kernel of the host removes them a moment after wine has said so.
            await until(lambda: not scene.pids(f"tree-{number}"), f"the end of tree {number}")


async def a_killed_warden_takes_its_tree_along(scene: Scene, rounds: int) -> None:
    """The warden is killed hard: its tree is gone, and the task is interrupted."""
    async with scene.session() as session:
        for number in range(rounds):
            up = scene.folder / f"killed-{number}"
            up.mkdir()
            promoted = await call(session, "ExecCommand", cmd=f"{scene.portable} tree {windows(up)} 2", yield_time_ms=50)
            await until(lambda: len(list(up.glob("up-*"))) == 4, "a tree")
            expect(scene.kill("__legwork-warden") > 0, True, "wardens")
            await until(lambda: not scene.pids(f"killed-{number}"), f"the end of tree {number}")
            ended = await call(session, "TaskWait", task_ids=[task_of(promoted)], timeout_ms=60_000)
            status = await call(session, "TaskStatus", task_id=task_of(promoted))
            expect_in("interrupted", (status["text"] + ended["text"]).lower())


CHECKS = [
    the_tools_of_a_whole_session,
    what_a_command_prints_is_kept_exactly,
    arguments_arrive_byte_for_byte,
    what_cannot_be_done_is_refused_with_a_word,
    a_shell_is_found_and_gets_its_script_as_it_is,
    a_command_can_have_a_terminal,
    folders_are_named_in_every_way,
    a_flood_is_stored_whole,
    the_server_prints_nothing_else,
    state_is_in_the_local_folder_of_the_user,
    the_doctor_finds_nothing_wrong,
    ctrl_c_ends_a_run_and_its_tree,
    a_killed_server_loses_nothing,
    a_stopped_tree_is_gone,
    a_killed_warden_takes_its_tree_along,
    *windows_people.CHECKS,
]


async def main() -> int:
    """All of it; the number of checks that failed."""
    programs, rounds, wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
    subprocess.run([WINE, "begin"], check=True)
    failed = 0
    for check in (check for check in CHECKS if wanted in check.__name__):
        scene = Scene(programs)
        scene.complaints.touch()
        begin = time.monotonic()
        try:
            await check(scene, rounds)
            expect(scene.complaints.read_text(), "", "what the servers said on stderr")
            print(f"ok      {check.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
        except BaseException as error:  # noqa: BLE001
            failed += 1
            print(f"FAILED  {check.__name__}: {reason(error)}", flush=True)
        finally:
            scene.end()
    print(f"{rounds} rounds, {failed} failed")
    return failed


def reason(error: BaseException) -> str:
    """The error itself, where it came through groups of tasks."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return repr(error)


sys.exit(min(asyncio.run(main()), 1))
