"""Prints the path of a test program, by its name, from the messages of `cargo test --no-run --message-format json`."""

import json
import sys

for line in sys.stdin:
    message = json.loads(line)
    if message.get("executable") and message.get("profile", {}).get("test") and message["target"]["name"] == sys.argv[1]:
        print(message["executable"])
