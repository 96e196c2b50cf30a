"""A web server on loopback that serves files by ranges, and fails as it is told."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import re
import socket
import struct
import time
from urllib.parse import unquote

from tests.helpers.emulators.serving import Handler, serving


@dataclasses.dataclass
class Page:
    """A file, and how the server answers for it.

    Attributes:
        data: Its bytes.
        etag: Its ETag; None makes one of the data, and an empty one states none.
        headers: Further headers.
        takes_ranges: Whether there are answers of status 206.
        states_size: Whether whole answers have a Content-Length.
        most: Most bytes of one answer.
        faults: What the next requests get: a status such as ``503``, ``cut`` for half of the bytes
            and then a reset, ``hang`` for none until the client goes away, ``slow`` for 100
            bytes after the other. One that ends in ``…`` is for all further requests.
        user: ``user:password`` in base64 that requests need.
    """

    data: bytes
    etag: str | None = None
    headers: dict[str, str] = dataclasses.field(default_factory=dict)
    takes_ranges: bool = True
    states_size: bool = True
    most: int = 2**62
    faults: list[str] = dataclasses.field(default_factory=list)
    user: str = ""


class WebServer:
    """The pages of a server by path, and the requests that it got.

    Attributes:
        url: Of the server, without a slash at its end.
        pages: The pages by decoded path; a text redirects to this URL.
        requests: ``GET /path?query range`` of every request, in order.
        encodings: Header Accept-Encoding of every request.
    """

    def __init__(self):
        self.url = ""
        self.pages = {}
        self.requests = []
        self.encodings = []

    def put(self, path, data, **options):
        """Serve some bytes at a path such as ``/a.csv``."""
        page = Page(data, **options)  # type: ignore[arg-type]
        self.pages[path] = page
        return page


@contextlib.contextmanager
def web_server(certificate=None):
    """Run a server, over TLS if there is a file of a certificate and its key."""
    web = WebServer()
    with serving(_Handler, certificate=certificate, web=web) as port:
        web.url = f"http{'s' if certificate else ''}://127.0.0.1:{port}"
        yield web


class _Handler(Handler):
    web: WebServer

    def do_GET(self):  # noqa: N802
        asked = self.headers.get("Range", "")
        self.web.requests.append(f"GET {self.path} {asked}".rstrip())
        self.web.encodings.append(self.headers.get("Accept-Encoding", ""))
        page = self.web.pages.get(unquote(self.path.partition("?")[0]))
        if page is None:
            self._answer(404, {}, b"not here")
        elif isinstance(page, str):
            self._answer(302, {"Location": page}, b"elsewhere")
        elif page.user and self.headers.get("Authorization") != f"Basic {page.user}":
            self._answer(401, {"WWW-Authenticate": "Basic"}, b"who are you")
        else:
            self._serve(page, asked)

    def _serve(self, page, asked):
        fault = page.faults[0] if page.faults else ""
        if not fault.endswith("…"):
            del page.faults[:1]
        fault = fault.rstrip("…")
        if fault.isdigit():
            self._answer(int(fault), page.headers, b"no")
            return
        etag = f'"{hashlib.md5(page.data).hexdigest()}"' if page.etag is None else page.etag
        headers = page.headers | ({"ETag": etag} if etag else {})
        data, status = page.data, 200
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", asked)
        if found and page.takes_ranges:
            start, stop = (
                int(found[1]),
                min(int(found[2]) + 1, len(data), int(found[1]) + page.most),
            )
            if start >= len(data):
                self._answer(416, headers | {"Content-Range": f"bytes */{len(data)}"}, b"")
                return
            stated = f"bytes {start}-{stop - 1}/{len(data)}"
            headers, data, status = {"Content-Range": stated} | headers, data[start:stop], 206
        self._answer(status, headers, data, fault, states_size=page.states_size)

    def _answer(self, status, headers, data, fault="", *, states_size=True):
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if states_size:
            self.send_header("Content-Length", str(len(data)))
        else:
            self.close_connection = True
        self.end_headers()
        if fault == "hang":
            self.connection.recv(1)
        elif fault == "slow":
            for at in range(0, len(data), 100):
                self.wfile.write(data[at : at + 100])
                time.sleep(0.02)
        else:
            self.wfile.write(data[: len(data) // 2] if fault == "cut" else data)
        if fault in ("cut", "hang"):
            self.wfile.flush()
            if states_size:
                # Closed with a reset, not an end.
                linger = struct.pack("ii", 1, 0)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.close_connection = True
