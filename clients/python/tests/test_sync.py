"""The synchronous library with the real program, over stdio and over HTTP."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor
from typing import List
from unittest import mock

import legwork_cli._conversation
import legwork_cli._stdio
import legwork_cli._sync
from common import UNCONFINED, PATIENCE, Case, children, eventually, is_alive
from legwork_cli import (
    Closed,
    CommandFailed,
    ConnectionLost,
    Decision,
    Denied,
    InputRefused,
    InvalidInput,
    Legwork,
    ProgramNotFound,
    ProtocolError,
    Question,
    Replied,
    Reply,
    TaskEnded,
    Unauthorized,
    UnknownTask,
    WaitTimeout,
    tool_definitions,
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Runs(Case):
    def test_a_command_gives_its_code_and_exactly_its_output(self) -> None:
        with self.connect() as lw:
            r = lw.run(r"printf '\n  a \n\n'; echo oops >&2; exit 3")
            self.assertEqual((r.exit_code, r.stdout, r.stderr), (3, "\n  a \n\n", "oops\n"))
            self.assertEqual((r.ok, r.signal, r.status), (False, None, "failed"))
            with self.assertRaises(CommandFailed) as raised:
                r.check()
            self.assertEqual(raised.exception.kind, "command_failed")
            self.assertIs(raised.exception.result, r)
            self.assertEqual(lw.run("true", check=True).exit_code, 0)
            self.assertRaises(CommandFailed, lw.run, "false", check=True)

    def test_a_signal_is_a_result(self) -> None:
        with self.connect() as lw:
            r = lw.run("kill -9 $$")
            self.assertEqual((r.exit_code, r.signal), (None, signal.SIGKILL))
            self.assertEqual(r.summary, "was killed by SIGKILL")

    def test_errors_are_exceptions_with_a_kind(self) -> None:
        rules = self.folder / "rules.toml"
        rules.write_text('excludeTools = ["run_shell_command(shred)"]\n')
        with self.connect(policy=[rules]) as lw:
            for command, workdir, kind, expected in [
                (" ", None, "invalid_tool_input", InvalidInput),
                ("pwd", "nowhere", "workdir_not_found", InvalidInput),
                ("pwd", "/", "execution_root_violation", InvalidInput),
                ("shred x", None, "command_denied", Denied),
                ("rm -rf x", None, "approval_unavailable", Denied),
            ]:
                with self.subTest(command), self.assertRaises(expected) as raised:
                    lw.run(command, workdir=workdir)
                self.assertEqual(raised.exception.kind, kind)
                self.assertIn(kind, str(raised.exception))
            with self.assertRaises(UnknownTask):
                lw.task("t_nothing").status()
            with self.assertRaises(ProtocolError) as problem:
                lw.call("Nothing", {})
            self.assertIn("there is no tool `Nothing`", str(problem.exception))

    def test_an_open_question_is_named_and_its_answer_counts(self) -> None:
        import subprocess

        with self.connect() as lw:
            with self.assertRaises(Denied) as raised:
                lw.run("rm -rf x")
            question = raised.exception.approval_id or ""
            self.assertTrue(raised.exception.retryable)
            approve = [self.program, "approve", question, "--state", str(self.state)]
            subprocess.run(approve, check=True, capture_output=True)
            self.assertTrue(lw.run("rm -rf x").ok)

    def test_big_output_is_complete_and_more_is_cut_with_a_marker(self) -> None:
        expected = "".join(f"{n}\n" for n in range(1, 20_001))
        with self.connect() as lw:
            r = lw.run("seq 20000; seq 3 >&2")
            self.assertTrue(r.stdout == expected and not r.truncated)
            self.assertEqual(r.stderr, "1\n2\n3\n")
            r = lw.run("seq 20000", max_output=8_000)
            self.assertTrue(r.truncated)
            self.assertTrue(r.stdout.startswith("1\n2\n"))
            self.assertTrue(r.stdout.rstrip().endswith("\n20000"))
            self.assertIn("left out", r.stdout)
            self.assertLess(len(r.stdout), 80_000)

    def test_a_timeout_stops_all_and_keeps_the_output(self) -> None:
        with self.connect(**UNCONFINED) as lw:
            r = lw.run("echo before; sleep 600 & echo $! > pid; wait", timeout=0.5)
            self.assertEqual((r.timed_out, r.ok, r.stdout), (True, False, "before\n"))
            self.assertEqual(r.status, "cancelled")
            self.assertFalse(is_alive(self.pid_in("pid")))
            self.assertFalse(lw.run("true", timeout=PATIENCE).timed_out)

    def test_secrets_do_not_come_through(self) -> None:
        with mock.patch.dict(os.environ, GITHUB_TOKEN="correct-horse-battery"):
            with self.connect() as lw:
                r = lw.run('echo "$GITHUB_TOKEN"')
                self.assertEqual(r.stdout, "[masked:GITHUB_TOKEN]\n")

    def test_many_threads_share_a_connection(self) -> None:
        with self.connect() as lw, ThreadPoolExecutor(16) as pool:
            found = list(pool.map(lambda n: lw.run(f"echo {n}").stdout, range(64)))
        self.assertEqual(found, [f"{n}\n" for n in range(64)])

    def test_a_model_reads_the_receipt_and_a_program_the_data(self) -> None:
        with self.connect() as lw:
            answer = lw.call("ExecCommand", {"cmd": "echo hi; exit 3"})
            self.assertEqual(answer.text, "Process exited with code 3\n\nstdout:\nhi")
            self.assertEqual(answer.result["exit_status"], 3)
            failed = lw.call("ExecCommand", {"cmd": ""})
            self.assertTrue(failed.is_error and failed.text.startswith("Command failed"))
            self.assertRaises(InvalidInput, lambda: failed.result)
            names = [tool["name"] for tool in lw.tools()]
            self.assertIn("ExecCommand", names)
            offered = tool_definitions("openai")
            self.assertEqual([tool["function"]["name"] for tool in offered], names)
            self.assertIn("ExecCommand", lw.instructions)


class Tasks(Case):
    def test_a_server_is_started_waited_for_followed_and_stopped(self) -> None:
        port = free_port()
        with self.connect() as lw:
            t = lw.start(f"echo serving; exec {sys.executable} -um http.server {port}")
            waited = t.wait(port=port)
            self.assertEqual(waited.condition, "port")
            self.assertTrue(waited.status.is_running)
            lines = t.lines()
            self.assertEqual(next(lines), "serving")
            pid = t.status().pid or 0
            stopped = t.stop()
            self.assertEqual((stopped.requested, stopped.survivors), (True, ()))
            self.assertFalse(is_alive(pid))
            list(lines)
            self.assertFalse(t.stop().requested)
            self.assertEqual(t.result().status, "cancelled")

    def test_lines_come_as_they_are_printed(self) -> None:
        with self.connect() as lw:
            t = lw.start("echo one; until [ -e go ]; do sleep 0.01; done; echo two; printf end")
            lines = t.lines()
            self.assertEqual(next(lines), "one")
            (self.workspace / "go").touch()
            self.assertEqual(list(lines), ["two", "end"])
            self.assertEqual(list(t.lines(stream="stderr")), [])
            r = t.result()
            self.assertEqual((r.exit_code, r.stdout, r.stderr), (0, "one\ntwo\nend", ""))

    def test_many_lines_come_once_and_in_order(self) -> None:
        with self.connect() as lw:
            found = list(lw.start("seq 10000").lines())
        self.assertEqual(found, [str(n) for n in range(1, 10_001)])

    def test_a_wait_that_fails_says_why(self) -> None:
        with self.connect() as lw:
            with lw.start("echo hello; sleep 600") as t:
                self.assertEqual(t.wait(output="hel+o").condition, "output_matches")
                with self.assertRaises(WaitTimeout) as late:
                    t.wait(output="never", timeout=0.1)
                self.assertIn("never", str(late.exception))
                self.assertEqual(t.wait(silence=0.01).condition, "silence_ms")
                self.assertRaises(WaitTimeout, t.result, timeout=0.05)
            self.assertFalse(t.status().is_running)
            ended = lw.start("echo bye; exit 4")
            with self.assertRaises(TaskEnded) as over:
                ended.wait(path="never")
            self.assertEqual(over.exception.status.exit_code, 4)
            self.assertEqual(ended.wait().condition, "exit")

    def test_input_goes_to_a_task_and_to_a_terminal(self) -> None:
        with self.connect() as lw:
            t = lw.start("read a; echo got $a; cat", accepts_input=True)
            t.wait(waiting_for_input=True)
            self.assertEqual(t.send("x y\n", wait=PATIENCE), "got x y")
            t.send("rest", eof=True)
            self.assertEqual(t.result().stdout, "got x y\nrest")
            with self.assertRaises(InputRefused) as refused:
                t.send("more")
            self.assertEqual(refused.exception.kind, "input_refused")
            with lw.start("stty size; read x; stty size; cat", tty=True) as tty:
                tty.wait(waiting_for_input=True)
                tty.resize(40, 120)
                tty.send(key="enter")
                tty.wait(output="40 120")
                self.assertIn("24 80", tty.screen())

    def test_tasks_are_listed_reused_and_found_by_id(self) -> None:
        with self.connect() as lw:
            with lw.start("sleep 600") as t:
                self.assertEqual([it.task_id for it in lw.tasks()], [t.id])
                self.assertEqual(lw.start("sleep 600", reuse=True).id, t.id)
                with lw.start("sleep 600") as other:
                    self.assertNotEqual(other.id, t.id)
                self.assertEqual(lw.task(t.id).status().command, "sleep 600")
            self.assertEqual(lw.tasks(), ())
            self.assertEqual(len(lw.tasks(include_finished=True)), 2)

    def test_a_task_goes_on_without_its_connection(self) -> None:
        with self.connect() as lw:
            t = lw.start("until [ -e go ]; do sleep 0.01; done; echo done")
        (self.workspace / "go").touch()
        with self.connect() as lw:
            self.assertEqual(lw.task(t.id).result().stdout, "done\n")


class Approvals(Case):
    def test_a_callback_decides(self) -> None:
        asked = []
        replies = iter(
            [True, Reply(Decision.DENY, "use make"), False, None, Decision.ALLOW_ONCE]
        )

        def approve(question: Question) -> Replied:
            asked.append(question)
            return next(replies)

        with self.connect(approve=approve) as lw:
            outcomes: List[object] = []
            for number in range(5):
                try:
                    outcomes.append(lw.run(f"rm -rf x{number}").exit_code)
                except Denied as error:
                    outcomes.append(error.kind)
                    if number == 1:
                        self.assertIn("use make", str(error))
        denied = "approval_refused"
        self.assertEqual(outcomes, [0, denied, denied, "approval_unavailable", 0])
        self.assertEqual([it.command for it in asked], [f"rm -rf x{n}" for n in range(5)])
        first = asked[0]
        self.assertIn("May this command run?", first.text)
        self.assertIn(Decision.ALLOW_SESSION, first.replies)
        self.assertTrue(first.reason and first.approval_id.startswith("a_"))
        self.assertEqual(first.workdir, str(self.workspace))

    def test_a_callback_that_fails_or_takes_long_keeps_nobody_waiting(self) -> None:
        asked, answer = threading.Event(), threading.Event()

        def approve(question: Question) -> Replied:
            if "boom" in question.command:
                raise RuntimeError("boom")
            asked.set()
            return answer.wait(PATIENCE)

        with self.connect(approve=approve) as lw, ThreadPoolExecutor(1) as pool:
            with self.assertLogs("legwork_cli"), self.assertRaises(Denied) as raised:
                lw.run("rm -rf boom")
            self.assertEqual(raised.exception.kind, "approval_unavailable")
            waiting = pool.submit(lw.run, "rm -rf x")
            self.assertTrue(asked.wait(PATIENCE))
            self.assertEqual(lw.run("echo meanwhile").stdout, "meanwhile\n")
            answer.set()
            self.assertTrue(waiting.result().ok)


class Endings(Case):
    def test_close_ends_calls_and_may_be_called_again(self) -> None:
        lw = self.connect(**UNCONFINED)
        with ThreadPoolExecutor(1) as pool:
            call = pool.submit(lw.run, "echo $$ > pid; exec sleep 600")
            pid = self.pid_in("pid")
            lw.close()
            self.assertIsInstance(call.exception(), Closed)
        lw.close()
        self.assertRaises(Closed, lw.run, "true")
        eventually("the command was stopped", lambda: not is_alive(pid))

    def test_an_interrupted_wait_stops_its_command(self) -> None:
        with self.connect(**UNCONFINED) as lw:
            ended = threading.Event()

            def interrupt() -> None:
                self.pid_in("pid")
                if not ended.is_set():
                    os.kill(os.getpid(), signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with self.assertRaises(KeyboardInterrupt):
                lw.run("echo $$ > pid; exec sleep 600")
            ended.set()
            thread.join()
            pid = self.pid_in("pid")
            eventually("the command was stopped", lambda: not is_alive(pid))
            self.assertEqual(lw.run("echo after").stdout, "after\n")

    def test_a_program_that_dies_fails_every_call(self) -> None:
        lw = self.connect(**UNCONFINED)
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(lw.run, f"echo $$ > pid{n}; exec sleep 600") for n in range(4)]
            pids = [self.pid_in(f"pid{n}") for n in range(4)]
            os.kill(self.server_pid(), signal.SIGKILL)
            for call in calls:
                self.assertIsInstance(call.exception(), ConnectionLost)
        self.assertRaises(ConnectionLost, lw.run, "true")
        lw.close()
        # A killed engine stops nothing: the commands are tasks like any other.
        if self.over_http:
            self.end_server(kill=True)
            self.restart_server()
        with self.connect(**UNCONFINED) as lw:
            running = lw.tasks()
            self.assertEqual(len(running), 4)
            for task in running:
                lw.task(task.task_id).stop()
        self.assertFalse(any(map(is_alive, pids)))

    def test_a_program_that_says_nothing_is_given_up(self) -> None:
        with self.connect() as lw:
            pid = self.server_pid()
            lw.run("true")
            with mock.patch.object(legwork_cli._sync, "SILENCE_MAX", 0.2):
                os.kill(pid, signal.SIGSTOP)
                try:
                    with self.assertRaises(ConnectionLost) as raised:
                        lw.run("true")
                finally:
                    os.kill(pid, signal.SIGCONT)
            self.assertIn("nothing was heard", str(raised.exception))


class OnlyStdio(Case):
    def test_a_program_that_does_not_end_is_killed(self) -> None:
        lw = self.connect()
        pid = self.server_pid()
        os.kill(pid, signal.SIGSTOP)
        with mock.patch.object(legwork_cli._stdio, "FAREWELL", 0.2):
            lw.close()
        self.assertFalse(is_alive(pid))

    def test_a_forgotten_connection_ends_its_program(self) -> None:
        lw = Legwork(**self.options())
        pid = self.server_pid()
        del lw
        gc.collect()
        eventually("the program has ended", lambda: not is_alive(pid))

    def test_ctrl_c_of_the_terminal_does_not_reach_the_program(self) -> None:
        with self.connect():
            self.assertNotEqual(os.getpgid(self.server_pid()), os.getpgrp())

    def test_a_program_that_cannot_work_says_why(self) -> None:
        self.assertRaises(ProgramNotFound, Legwork, program="/no/such/program")
        with self.assertRaises(ConnectionLost) as raised:
            Legwork(self.workspace, state="/proc/none")
        self.assertIn("/proc/none", str(raised.exception))
        with self.assertRaises(ConnectionLost) as raised:
            Legwork(self.workspace, program="/bin/true")
        self.assertIn("exit code 0", str(raised.exception))
        self.assertEqual(children(), [])

    def test_the_program_is_found_by_variable_then_path(self) -> None:
        from legwork_cli import find_program

        self.assertEqual(find_program("/bin/sh"), "/bin/sh")
        with mock.patch.dict(os.environ, LEGWORK_PROGRAM="/bin/sh"):
            self.assertEqual(find_program(), "/bin/sh")
            self.assertEqual(find_program("/bin/true"), "/bin/true")
        bare = {key: it for key, it in os.environ.items() if key != "LEGWORK_PROGRAM"}
        (self.folder / "legwork").symlink_to("/bin/true")
        with mock.patch.dict(os.environ, {**bare, "PATH": str(self.folder)}, clear=True):
            self.assertEqual(find_program(), str(self.folder / "legwork"))
        with mock.patch.dict(os.environ, {**bare, "PATH": ""}, clear=True):
            self.assertRaises(ProgramNotFound, find_program)

    def test_arguments_that_do_not_fit_together_are_refused(self) -> None:
        self.assertRaises(ValueError, Legwork, url="http://127.0.0.1:1")
        self.assertRaises(ValueError, Legwork, token="x")
        self.assertRaises(ValueError, Legwork, "folder", url="http://127.0.0.1:1", token="x")
        self.assertRaises(ValueError, Legwork, url="ftp://127.0.0.1", token="x")


class OverHttp(Case):
    over_http = True


class RunsOverHttp(OverHttp, Runs):
    pass


class TasksOverHttp(OverHttp, Tasks):
    pass


class ApprovalsOverHttp(OverHttp, Approvals):
    pass


class EndingsOverHttp(OverHttp, Endings):
    def test_a_wrong_token_and_a_missing_server_are_told_apart(self) -> None:
        self.connect().close()
        self.assertRaises(Unauthorized, Legwork, url=self._url, token="wrong")
        self.end_server()
        self.assertRaises(ConnectionLost, Legwork, url=self._url, token=self.token)

    def test_a_server_that_was_started_again_is_found_again(self) -> None:
        port = free_port()
        self.begin_server(listen=f"127.0.0.1:{port}")
        with self.connect() as lw:
            self.assertTrue(lw.run("true").ok)
            self.end_server(kill=True)
            self.restart_server()
            self.assertTrue(lw.run("true").ok)

    def test_a_unix_socket_is_an_address(self) -> None:
        self.begin_server(listen=f"unix:{self.folder}/socket")
        with Legwork(url=f"unix:{self.folder}/socket", token=self.token) as lw:
            self.assertEqual(lw.run("echo hi").stdout, "hi\n")

    def test_a_call_whose_connection_breaks_is_found_again(self) -> None:
        with self.connect() as lw, ThreadPoolExecutor(1) as pool:
            script = "echo x >> runs; until [ -e go ]; do sleep 0.01; done; echo done"
            call = pool.submit(lw.run, script)
            eventually("it runs", (self.workspace / "runs").exists)
            transport = lw._conversation._transport
            assert transport is not None
            for connection in list(transport._busy):  # type: ignore[attr-defined]
                connection.sock.shutdown(socket.SHUT_RDWR)
            (self.workspace / "go").touch()
            self.assertEqual(call.result().stdout, "done\n")
            self.assertEqual((self.workspace / "runs").read_text(), "x\n")


if __name__ == "__main__":
    unittest.main()
