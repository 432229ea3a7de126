"""Servers for the tests of connections by name: HTTP and HTTPS on one address of the loopback.

Prints their ports as JSON, serves until its standard input ends, and notes each request in a file.
"""

import base64
import hashlib
import http.server
import io
import json
import os
import socket
import ssl
import struct
import sys
import threading
import zipfile

ADDRESS, FOLDER = sys.argv[1], sys.argv[2]


def wheel():
    """A package without any code that could matter."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        info = "tinything-1.0.dist-info/"
        archive.writestr("tinything.py", "WORD = 'from the index'\n")
        archive.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: tinything\nVersion: 1.0\n")
        archive.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(info + "RECORD", "")
    return content.getvalue()


def npm_package():
    import tarfile

    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, text in [
            ("package/package.json", '{"name":"tinything","version":"1.0.0"}'),
            ("package/index.js", "module.exports = 'from the registry';\n"),
        ]:
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return content.getvalue()


WHEEL, PACKAGE = wheel(), npm_package()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        with open(os.path.join(FOLDER, "requests"), "a") as log:
            log.write(f"{self.command} {self.headers.get('Host')} {self.path}\n")

    def answer(self, content, kind="text/plain", status=200, headers=()):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        host = self.headers.get("Host")
        scheme = "https" if isinstance(self.connection, ssl.SSLSocket) else "http"
        if self.headers.get("Upgrade", "").lower() == "websocket":
            return self.web_socket()
        if path == "/silent":
            open(os.path.join(FOLDER, "silent"), "w").close()
            while self.rfile.read(1):
                pass
            return None
        if path == "/redirect":
            return self.answer(b"", status=302, headers=[("Location", query)])
        if path == "/big":
            self.send_response(200)
            self.send_header("Content-Length", query)
            self.end_headers()
            left, piece = int(query), bytes(1 << 20)
            while left > 0:
                self.wfile.write(piece[: min(left, len(piece))])
                left -= len(piece)
            return None
        if path == "/simple/tinything/":
            digest = hashlib.sha256(WHEEL).hexdigest()
            name = "tinything-1.0-py3-none-any.whl"
            return self.answer(f'<a href="/files/{name}#sha256={digest}">{name}</a>'.encode(), "text/html")
        if path.startswith("/files/"):
            return self.answer(WHEEL, "application/octet-stream")
        if path == "/tinything":
            digest = "sha512-" + base64.b64encode(hashlib.sha512(PACKAGE).digest()).decode()
            version = {
                "name": "tinything",
                "version": "1.0.0",
                "dist": {"tarball": f"{scheme}://{host}/tinything.tgz", "integrity": digest},
            }
            text = {"name": "tinything", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
            return self.answer(json.dumps(text).encode(), "application/json")
        if path == "/tinything.tgz":
            return self.answer(PACKAGE, "application/octet-stream")
        file = os.path.join(FOLDER, "files", path.lstrip("/"))
        if os.path.isfile(file):
            with open(file, "rb") as content:
                return self.answer(content.read(), "application/octet-stream")
        if path == "/hello":
            return self.answer(f"hello from {host}\n".encode())
        return self.answer(b"not here\n", status=404)

    def do_POST(self):
        length = self.headers.get("Content-Length")
        if length is None:
            total = 0
            while size := int(self.rfile.readline().split(b";")[0], 16):
                total += len(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        else:
            total, left = 0, int(length)
            while left > 0 and (piece := self.rfile.read(min(left, 1 << 16))):
                total, left = total + len(piece), left - len(piece)
        self.answer(f"took {total}\n".encode())

    def web_socket(self):
        """Answers one short message with itself."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.wfile.write(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            + f"Sec-WebSocket-Accept: {accept}\r\n\r\n".encode()
        )
        _, length = struct.unpack("BB", self.rfile.read(2))
        mask, content = self.rfile.read(4), self.rfile.read(length & 127)
        content = bytes(byte ^ mask[place % 4] for place, byte in enumerate(content))
        self.wfile.write(bytes([0x81, len(content)]) + content)
        self.close_connection = True


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


def serve(context=None):
    server = Server((ADDRESS, 0), Handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(os.path.join(FOLDER, "server.pem"), os.path.join(FOLDER, "server.key"))
print(json.dumps({"http": serve(), "https": serve(context)}), flush=True)
sys.stdin.read()
