"""The library for asyncio with the real program, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import unittest
from typing import Any, Coroutine

from common import UNCONFINED, Case, eventually, is_alive
from legwork_cli import AsyncLegwork, Closed, ConnectionLost, Denied, Question, Replied


def on_a_loop(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


class Async(Case):
    def test_commands_run_side_by_side(self) -> None:
        async def main() -> None:
            async with self.connect_async() as lw:
                results = await asyncio.gather(*(lw.run(f"echo {n}; exit {n}") for n in range(20)))
                self.assertEqual([r.exit_code for r in results], list(range(20)))
                self.assertEqual([r.stdout for r in results], [f"{n}\n" for n in range(20)])
                self.assertIn("ExecCommand", lw.instructions)
                self.assertTrue((await lw.call("TaskList", {})).text)
                self.assertTrue(await lw.tools())

        on_a_loop(main())

    def test_tasks_are_followed_and_stopped(self) -> None:
        async def main() -> None:
            async with self.connect_async() as lw:
                async with await lw.start("echo one; read x; echo $x", accepts_input=True) as t:
                    await t.wait(waiting_for_input=True)
                    await t.send("two\n")
                    self.assertEqual([line async for line in t.lines()], ["one", "two"])
                    self.assertEqual((await t.result()).exit_code, 0)
                async with await lw.start("sleep 600") as t:
                    self.assertTrue((await t.status()).is_running)
                self.assertEqual((await lw.task(t.id).status()).status, "cancelled")
                self.assertEqual(await lw.tasks(), ())

        on_a_loop(main())

    def test_a_cancelled_call_stops_its_command(self) -> None:
        async def main() -> None:
            async with self.connect_async(**UNCONFINED) as lw:
                call = asyncio.create_task(lw.run("echo $$ > pid; exec sleep 600"))
                pid = await asyncio.to_thread(self.pid_in, "pid")
                call.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await call
                await asyncio.to_thread(eventually, "it was stopped", lambda: not is_alive(pid))
                self.assertEqual((await lw.run("echo after")).stdout, "after\n")

        on_a_loop(main())

    def test_a_callback_may_be_a_coroutine(self) -> None:
        async def approve(question: Question) -> Replied:
            await asyncio.sleep(0)
            return "yes" in question.command

        async def main() -> None:
            async with self.connect_async(approve=approve) as lw:
                allowed, refused = await asyncio.gather(
                    lw.run("rm -rf yes"), lw.run("rm -rf no"), return_exceptions=True
                )
                self.assertEqual(getattr(allowed, "exit_code", allowed), 0)
                assert isinstance(refused, Denied)
                self.assertEqual(refused.kind, "approval_refused")

        on_a_loop(main())

    def test_the_loop_goes_on_while_the_program_does_not(self) -> None:
        async def main() -> None:
            async with self.connect_async() as lw:
                await lw.run("true")
                pid = self.server_pid()
                os.kill(pid, signal.SIGSTOP)
                try:
                    # More than a pipe holds.
                    calls = [asyncio.create_task(lw.run("true #" + "x" * 50_000)) for _ in range(9)]
                    await asyncio.sleep(0)
                finally:
                    os.kill(pid, signal.SIGCONT)
                self.assertTrue(all(r.ok for r in await asyncio.gather(*calls)))

        on_a_loop(main())

    def test_close_may_be_called_again_and_ends_calls(self) -> None:
        async def main() -> None:
            lw = await self.connect_async(**UNCONFINED).open()
            call = asyncio.create_task(lw.run("echo $$ > pid; exec sleep 600"))
            await asyncio.to_thread(self.pid_in, "pid")
            await lw.close()
            with self.assertRaises(Closed):
                await call
            await lw.close()
            with self.assertRaises(Closed):
                await lw.run("true")
            with self.assertRaises(Closed):
                await AsyncLegwork().run("true")

        on_a_loop(main())

    def test_a_program_that_dies_fails_the_call(self) -> None:
        async def main() -> None:
            async with self.connect_async(**UNCONFINED) as lw:
                call = asyncio.create_task(lw.run("echo $$ > pid; exec sleep 600"))
                command = await asyncio.to_thread(self.pid_in, "pid")
                os.kill(self.server_pid(), signal.SIGKILL)
                with self.assertRaises(ConnectionLost):
                    await call
            os.kill(command, signal.SIGTERM)

        on_a_loop(main())


class AsyncOverHttp(Async):
    over_http = True


if __name__ == "__main__":
    unittest.main()
