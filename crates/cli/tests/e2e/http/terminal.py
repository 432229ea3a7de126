"""Drives the terminal of a task over a WebSocket, with a client that is not ours."""

import json
import sys

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect


class Terminal:
    def __init__(self, base, task, token, **more):
        url = f"{base.replace('http', 'ws', 1)}/api/v1/tasks/{task}/terminal"
        headers = {"Authorization": f"Bearer {token}"}
        self.socket = connect(url, additional_headers=headers, max_size=None, **more)
        self.shown = b""
        self.told = []
        self.attached = self.until_told("attached")

    def receive(self):
        message = self.socket.recv(timeout=60)
        if isinstance(message, bytes):
            self.shown += message
        else:
            self.told.append(json.loads(message))

    def until_told(self, kind):
        while True:
            for message in self.told:
                if message["type"] == kind:
                    self.told.remove(message)
                    return message
            self.receive()

    def until_shown(self, *texts):
        """Waits for texts, one behind the other, and forgets them."""
        for text in texts:
            while text not in self.shown:
                self.receive()
            self.shown = self.shown.split(text, 1)[1]

    def type(self, text):
        self.socket.send(text.encode())

    def say(self, message):
        self.socket.send(json.dumps(message))

    def closed(self):
        """The code and the reason of the end."""
        try:
            while True:
                self.receive()
        except ConnectionClosed as closed:
            return closed.rcvd.code, closed.rcvd.reason


def refused(base, task, token, **more):
    try:
        Terminal(base, task, token, **more)
    except InvalidStatus as refusal:
        return refusal.response.status_code, json.loads(refusal.response.body)["error"]["kind"]
    raise AssertionError("it was let in")


def equal(found, expected):
    assert found == expected, f"{found!r} is not {expected!r}"


def keys(base, tasks, tokens):
    """Bytes go both ways, and what others type is seen."""
    cat = Terminal(base, tasks["cat"], tokens["operator"])
    equal((cat.attached["rows"], cat.attached["cols"]), (24, 80))
    equal(cat.attached["may_type"], True)
    cat.type("hello\r")
    # The terminal's echo, and cat's own.
    cat.until_shown(b"hello\r\n", b"hello\r\n")
    # Who comes later sees the screen.
    viewer = Terminal(base, tasks["cat"], tokens["viewer"])
    viewer.until_shown(b"hello", b"hello")
    cat.type("more\r")
    viewer.until_shown(b"more", b"more\r\n")
    # A text that is longer than a terminal takes at once, in one message; without an echo, which
    # would come in between.
    quiet = Terminal(base, tasks["quiet"], tokens["operator"])
    quiet.until_shown(b"ready")
    quiet.type("".join(f"line {number}\r" for number in range(2000)))
    quiet.until_shown(*(b"line %d\r\n" % number for number in range(2000)))


def resize(base, tasks, tokens):
    shell = Terminal(base, tasks["sh"], tokens["operator"])
    shell.say({"type": "resize", "rows": 41, "cols": 101})
    shell.type("stty size\r")
    shell.until_shown(b"41 101")
    for wrong in [{"type": "resize", "rows": 0, "cols": 80}, {"type": "dance"}, []]:
        shell.say(wrong)
        equal(shell.until_told("refused")["error"]["kind"], "invalid_tool_input")
    # A full screen is drawn for whoever comes later.
    shell.type("printf '\\033[?1049h\\033[2J\\033[3;5Hmenu'; read x\r")
    shell.until_shown(b"menu")
    later = Terminal(base, tasks["sh"], tokens["operator"])
    equal((later.attached["rows"], later.attached["cols"]), (41, 101))
    later.until_shown(b"\x1b[?1049h", b"menu")


def end(base, tasks, tokens):
    shell = Terminal(base, tasks["sh"], tokens["operator"])
    shell.type("exit 7\r")
    ended = shell.until_told("ended")
    equal((ended["status"], ended["exit_status"]), ("failed", 7))
    equal(shell.closed(), (1000, "the task has ended"))
    equal(refused(base, tasks["sh"], tokens["operator"]), (409, "no_terminal"))


def roles(base, tasks, tokens):
    viewer = Terminal(base, tasks["cat"], tokens["viewer"])
    equal(viewer.attached["may_type"], False)
    viewer.type("typed by a viewer\r")
    equal(viewer.until_told("refused")["error"]["kind"], "command_denied")
    viewer.say({"type": "resize", "rows": 10, "cols": 10})
    equal(viewer.until_told("refused")["error"]["kind"], "command_denied")
    # An agent's trust is less than that of who started this task.
    agent = Terminal(base, tasks["cat"], tokens["agent"])
    equal(agent.attached["may_type"], False)
    agent.type("typed by an agent\r")
    error = agent.until_told("refused")["error"]
    equal((error["kind"], error["details"]["less"]), ("command_denied", "trust"))
    agent.say({"type": "resize", "rows": 10, "cols": 10})
    equal(agent.until_told("refused")["error"]["details"]["less"], "trust")
    own = Terminal(base, tasks["agent's"], tokens["agent"])
    equal(own.attached["may_type"], True)
    own.say({"type": "resize", "rows": 41, "cols": 101})
    own.type("stty size\r")
    own.until_shown(b"41 101")
    person = Terminal(base, tasks["cat"], tokens["operator"])
    person.type("typed by a person\r")
    # The keys of the others, which were first, are nowhere.
    viewer.until_shown(b"typed by a person")
    assert b"typed by a" not in viewer.shown.replace(b"typed by a person", b"")
    for token in ["elsewhere", "operator elsewhere"]:
        equal(refused(base, tasks["cat"], tokens[token]), (404, "unknown_task"))
    equal(refused(base, tasks["pipes"], tokens["operator"]), (409, "no_terminal"))
    for origin in ["http://evil.example", "null"]:
        equal(refused(base, tasks["cat"], tokens["operator"], origin=origin), (403, "wrong_origin"))
    own = Terminal(base, tasks["cat"], tokens["operator"], origin=base)
    own.socket.close()


def secrets(base, tasks, tokens):
    """Only an operator sees them, on the screen and in what comes."""
    tokens_seen = [("operator", True), ("agent", False), ("viewer", False)]
    for repeat in range(2):
        seen = [(Terminal(base, tasks["cat"], tokens[name]), may) for name, may in tokens_seen]
        seen[0][0].type(f"key ghp_{'Ab1' * 12} {repeat}\r\r")
        for terminal, may in seen:
            while terminal.shown.count(b" %d\r\n" % repeat) < 2:
                terminal.receive()
            assert (b"ghp_Ab1" in terminal.shown) == may, terminal.shown


def strict(base, tasks, tokens):
    """Keys cannot be judged: an agent sends lines instead, and a person types."""
    agent = Terminal(base, tasks["agent's"], tokens["agent"])
    agent.type("touch by-agent\r")
    error = agent.until_told("refused")["error"]
    equal(error["kind"], "command_denied")
    assert "whole lines" in error["message"], error
    person = Terminal(base, tasks["sh"], tokens["operator"])
    person.type("touch by-person; echo do''ne\r")
    person.until_shown(b"done")


def revoked(base, tasks, tokens):
    terminal = Terminal(base, tasks["cat"], tokens["goes"])
    print("attached", flush=True)
    equal(terminal.closed()[0], 4001)


def farewell(base, tasks, tokens):
    terminal = Terminal(base, tasks["cat"], tokens["operator"])
    print("attached", flush=True)
    equal(terminal.closed(), (1001, "the server ends; the task goes on"))


scenario, base, tasks, tokens = sys.argv[1:]
globals()[scenario](base, json.loads(tasks), json.loads(tokens))
print("all well")
