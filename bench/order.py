#!/usr/bin/env python3
"""Finds the functions that a run and a session need, and writes them into crates/cli/order.ld.

`bench/order.py PROGRAM`: run by `just order`, with the optimised program. A breakpoint stands on every function of it; the first
process that comes by one takes it away for itself. The functions are written in the order in which they were first needed, so
that the linker puts them side by side: the fewer pages they lie on, the fewer have to be mapped when a process starts.
"""

import ctypes
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading

ORDER = pathlib.Path(__file__).parent.parent / "crates/cli/order.ld"
# Names differ in what they end with long before.
NAME_MAX = 160
HEAD = """\
/* The functions that a run and a session need, in the order of their first use: the linker puts them side by side, so that few
   pages are mapped. Written by `just order`; what is not found here stays where it would be. */
SECTIONS
{
  .text.first :
  {
"""
FOOT = "  }\n}\nINSERT BEFORE .text;\n"

BREAKPOINT = b"\xcc"
TRACEME, CONT, GETREGS, SETREGS, SETOPTIONS = 0, 7, 12, 13, 0x4200
# Forks, threads and new programs are followed.
FOLLOW = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4
EVENT_EXEC = 4
ALL_CHILDREN = 0x40000000
REGISTERS, INSTRUCTION_POINTER = 27, 16

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def functions(program: str) -> dict[int, list[str]]:
    """The functions of a program by their addresses in its file."""
    found: dict[int, list[str]] = {}
    for line in subprocess.run(["nm", "--defined-only", program], capture_output=True, text=True, check=True).stdout.splitlines():
        address, kind, name = line.split(" ", 2)
        if kind in "tTwW":
            found.setdefault(int(address, 16), []).append(name)
    return found


class Trace:
    """A program and its descendants, of which each function is noted once."""

    def __init__(self, program: str, names: dict[int, list[str]]) -> None:
        self.program, self.names = os.path.realpath(program), names
        self.seen: dict[str, None] = {}
        self.code: dict[int, bytes] = {}

    def run(self, words: list[str], converse: object = None) -> None:
        """Follows one run to the end of all its processes. Its streams are a conversation's."""
        given, written = os.pipe(), os.pipe()
        root = os.fork()
        if root == 0:
            os.dup2(given[0], 0)
            os.dup2(written[1], 1)
            libc.ptrace(TRACEME, 0, None, None)
            os.kill(os.getpid(), signal.SIGSTOP)
            os.closerange(3, 256)
            os.execv(self.program, [self.program, *words])
        os.close(given[0])
        os.close(written[1])
        os.waitpid(root, 0)
        libc.ptrace(SETOPTIONS, root, None, FOLLOW)
        libc.ptrace(CONT, root, None, None)
        speaker = threading.Thread(target=speak, args=(given[1], written[0], converse))
        speaker.start()
        while True:
            try:
                pid, status = os.waitpid(-1, ALL_CHILDREN)
            except ChildProcessError:
                break
            if os.WIFSTOPPED(status):
                libc.ptrace(CONT, pid, None, self.stopped(pid, status))
        speaker.join()

    def stopped(self, pid: int, status: int) -> int:
        """Looks at a process that stands; returns the signal that it goes on with."""
        number, event = os.WSTOPSIG(status), status >> 16
        if number == signal.SIGTRAP and event == EVENT_EXEC:
            self.plant(pid)
            return 0
        if event or number == signal.SIGSTOP:
            return 0
        return 0 if number == signal.SIGTRAP and self.step_over(pid) else number

    def base(self, pid: int) -> int | None:
        """Where the program lies in a process, if it is ours."""
        if os.readlink(f"/proc/{pid}/exe") != self.program:
            return None
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            if line.endswith(self.program):
                return int(line.split("-")[0], 16)
        return None

    def plant(self, pid: int) -> None:
        """Puts a breakpoint on every function of a new program."""
        base = self.base(pid)
        if base is None:
            return
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            for address in self.names:
                memory.seek(base + address)
                self.code[address] = memory.read(1)
                memory.seek(base + address)
                memory.write(BREAKPOINT)

    def step_over(self, pid: int) -> bool:
        """Takes away the breakpoint that a process came by, and notes its function."""
        registers = (ctypes.c_ulong * REGISTERS)()
        libc.ptrace(GETREGS, pid, None, registers)
        base, stands = self.base(pid), registers[INSTRUCTION_POINTER] - 1
        if base is None or stands - base not in self.names:
            return False
        for name in self.names[stands - base]:
            self.seen.setdefault(name)
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            memory.seek(stands)
            memory.write(self.code[stands - base])
        registers[INSTRUCTION_POINTER] = stands
        libc.ptrace(SETREGS, pid, None, registers)
        return True


def speak(given: int, written: int, converse: object) -> None:
    """Leads a conversation, and closes both streams after it."""
    with os.fdopen(given, "w") as to, os.fdopen(written) as of:
        if converse:
            converse(to, of)
        to.close()
        of.read()


def session(to: object, of: object) -> None:
    """What clients of MCP do most."""
    number = 0

    def ask(method: str, **parameters: object) -> str:
        nonlocal number
        number += 1
        print(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": parameters}), file=to, flush=True)
        while json.loads(answer := of.readline()).get("id") != number:
            pass
        return answer

    def call(tool: str, **arguments: object) -> str:
        return ask("tools/call", name=tool, arguments=arguments)

    ask("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "order", "version": "1"})
    print(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}), file=to, flush=True)
    ask("tools/list")
    for _ in range(5):
        call("ExecCommand", cmd="true")
    call("ExecCommand", cmd="ls / | head -3; echo no >&2; exit 3")
    call("execute_command", command="true", args=[])
    call("run_shell_command", command="true")
    task = re.search(r"t_[0-9a-z]+", call("ExecCommand", cmd="sleep 60; echo never", yield_time_ms=0))
    call("TaskList")
    call("TaskStop", task_id=task[0])


def pattern(name: str) -> str:
    """A function's section, without what differs from one build to the next."""
    base, dot, _ = name.partition(".")
    base = re.sub(r"Cs[0-9A-Za-z]+_", "Cs*_", base)
    if len(base) > NAME_MAX:
        return f".text*.{base[:NAME_MAX]}*"
    return f".text*.{base}" + (f" .text*.{base}.*" if dot else "")


def main() -> None:
    """Traces runs and sessions, cold ones first, and writes the order."""
    program = sys.argv[1]
    trace = Trace(program, functions(program))
    with tempfile.TemporaryDirectory() as folder:
        state = ["--state", f"{folder}/state"]
        # The first one makes the state folder: its functions are seldom needed.
        subprocess.run([program, "run", "--mode", "open", *state, "--", "true"], check=True)
        trace.run(["run", "--mode", "open", *state, "--", "true"])
        for mode in (["--mode", "open"], []):
            trace.run(["mcp", *mode, *state, "--tools", "all"], session)
        trace.run(["run", *state, "--", "true"])
        trace.run(["ps", *state])
        trace.run(["run", "--mode", "open", "--state", f"{folder}/new", "--", "true"])
    patterns = dict.fromkeys(map(pattern, trace.seen))
    ORDER.write_text(HEAD + "".join(f"    *({each})\n" for each in patterns) + FOOT)
    print(f"{len(trace.seen)} functions of {sum(map(len, trace.names.values()))}, {len(patterns)} patterns")


main()
