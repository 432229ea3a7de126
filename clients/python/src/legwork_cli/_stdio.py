"""The transport over the pipes of a `legwork mcp` that belongs to this connection.

One thread reads and one writes, so that nobody who calls is ever blocked by a pipe.
"""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
from typing import IO, Any, Mapping, Optional, Sequence

from ._conversation import Conversation, log
from ._errors import ConnectionLost, ProgramNotFound
from ._model import Json

#: How long the program may take to stop the commands that were waited for, and to end.
FAREWELL = 10.0


class StdioTransport:
    def __init__(
        self,
        conversation: Conversation,
        command: Sequence[str],
        env: Optional[Mapping[str, str]],
    ) -> None:
        self._conversation = conversation
        self._closing = threading.Lock()
        self._queue: queue.SimpleQueue[Optional[bytes]] = queue.SimpleQueue()
        # What the program complains about is told when it dies; a file never blocks it.
        self._complaints: IO[bytes] = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
                env=env,
                # Ctrl-C is for this process, which then closes the connection.
                start_new_session=True,
            )
        except OSError as error:
            self._complaints.close()
            raise ProgramNotFound(f"{command[0]} cannot be started: {error}") from error
        self._threads = [
            threading.Thread(target=work, name=f"legwork-{name}", daemon=True)
            for name, work in (("reader", self._read), ("writer", self._write))
        ]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Json) -> None:
        self._queue.put(json.dumps(message, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        with self._closing:
            self._queue.put(None)
            try:
                self._process.wait(FAREWELL)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join()
            for pipe in (self._process.stdin, self._process.stdout, self._complaints):
                _close(pipe)

    def _write(self) -> None:
        stdin = self._process.stdin
        try:
            while stdin is not None:
                line = self._queue.get()
                if line is None:
                    break
                stdin.write(line)
                stdin.flush()
        except (OSError, ValueError):
            pass  # The reader sees why.
        finally:
            # The end of its input is how the program knows that the client has left.
            _close(stdin)

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            for line in stdout:
                try:
                    message = json.loads(line)
                except ValueError:
                    log.warning("legwork printed a line that is not JSON: %r", line[:200])
                    continue
                if isinstance(message, dict):
                    self._conversation.receive(message)
        except (OSError, ValueError):
            pass
        self._conversation.lost(self._died())
        self._queue.put(None)

    def _died(self) -> ConnectionLost:
        """Its stdout is closed: the program ends."""
        try:
            code: Any = self._process.wait(FAREWELL)
        except subprocess.TimeoutExpired:
            code = "unknown"
        told = ""
        try:
            self._complaints.seek(0)
            told = self._complaints.read(4000).decode(errors="replace").strip()
        except (OSError, ValueError):
            pass
        message = f"the program has ended (exit code {code})" + (f": {told}" if told else "")
        return ConnectionLost(message, details={"exit_code": code}, retryable=True)


def _close(file: Optional[IO[bytes]]) -> None:
    try:
        if file is not None:
            file.close()
    except OSError:
        pass
