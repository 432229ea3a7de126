"""A folder, a state folder and the real program for each test; nothing may be left of either."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any, Callable, List, Optional
from unittest import mock

from legwork_cli import AsyncLegwork, Legwork, find_program

#: How long something may take before it has failed.
PATIENCE = 60.0

#: Inside a sandbox a command sees other pids than this process does.
UNCONFINED = {"sandbox": "none"}


def eventually(what: str, holds: Callable[[], Any]) -> Any:
    """Waits until something is there."""
    end = time.monotonic() + PATIENCE
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"never happened: {what}")
        time.sleep(0.005)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(") ")[2][0] not in "ZX"


def children() -> List[int]:
    """The live children of this process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_alive(int(entry.name)):
            try:
                fields = (entry / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid():
                found.append(int(entry.name))
    return found


def library_threads() -> List[str]:
    return [it.name for it in threading.enumerate() if it.name.startswith("legwork-")]


class Case(unittest.TestCase):
    """Speaks over stdio; `OverHttp` makes it speak to a server."""

    over_http = False

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="legwork-python-")).resolve()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.workspace = self.folder / "workspace"
        self.state = self.folder / "state"
        self.workspace.mkdir()
        self.program = find_program()
        # Profiles of this machine's user have no part in it.
        (self.folder / "home").mkdir()
        plain = {"HOME": str(self.folder / "home"), "SHELL": "/bin/sh"}
        environment = mock.patch.dict(os.environ, plain)
        environment.start()
        self.addCleanup(environment.stop)
        self._server: Optional[subprocess.Popen[str]] = None
        self._url = ""
        self.addCleanup(self._check_nothing_is_left)
        if self.over_http:
            self.addCleanup(self.end_server)

    def options(self, **more: Any) -> Any:
        """The arguments of a connection, stdio or HTTP."""
        approve = {"approve": more.pop("approve")} if "approve" in more else {}
        if not self.over_http:
            return {"workspace": self.workspace, "state": self.state, **more, **approve}
        if self._server is None:
            self.begin_server(**more)
        return {"url": self._url, "token": self.token, **approve}

    def connect(self, **more: Any) -> Legwork:
        connection = Legwork(**self.options(**more))
        self.addCleanup(connection.close)
        return connection

    def connect_async(self, **more: Any) -> AsyncLegwork:
        return AsyncLegwork(**self.options(**more))

    def begin_server(self, listen: str = "127.0.0.1:0", **more: Any) -> None:
        place = ["--state", str(self.state), "--workspace", str(self.workspace)]
        add = [self.program, "token", "add", "python", "--role", "operator", *place]
        made = subprocess.run(add, capture_output=True, text=True, check=True)
        self.token = made.stdout.strip()
        command = [self.program, "serve", "--listen", listen, *place]
        for name, value in more.items():
            for each in value if isinstance(value, (list, tuple)) else [value]:
                command += [f"--{name}", str(each)]
        self.serve_command = command
        self.restart_server()

    def restart_server(self) -> None:
        self._server = subprocess.Popen(
            self.serve_command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._server.stdout is not None
        self._url = self._server.stdout.readline().strip()

    def end_server(self, kill: bool = False) -> None:
        if self._server is not None:
            self._server.kill() if kill else self._server.terminate()
            self._server.wait()
            assert self._server.stdout is not None
            self._server.stdout.close()
            self._server = None

    def server_pid(self) -> int:
        """The program that answers."""
        if self._server is not None:
            return self._server.pid
        (pid,) = children()
        return pid

    def pid_in(self, name: str) -> int:
        """The pid that a command has written into a file, with a line end."""
        path = self.workspace / name

        def line() -> str:
            text = path.read_text() if path.exists() else ""
            return text if text.endswith("\n") else ""

        return int(eventually(name, line))

    def _check_nothing_is_left(self) -> None:
        eventually("all threads have ended", lambda: not library_threads())
        eventually("all programs have ended", lambda: not children())
