"""A loopback HTTP proxy between a client and an emulator that fails as it is told."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import re
import socket
import struct
import threading
from urllib.parse import urlsplit

from tests.helpers.emulators.serving import Handler, serving

_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "expect"}


@dataclasses.dataclass
class _Plan:
    pattern: re.Pattern[str]
    fault: str
    times: int
    skip: int


class Faults:
    """What goes wrong, and what was asked for.

    Attributes:
        requests: ``METHOD /path?query`` of every request, in order.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._planned = []
        self.requests = []

    def plan(self, pattern, fault, times=1, *, skip=0):
        """Let the next requests that match fail.

        Args:
            pattern: Regular expression, searched in ``METHOD /path?query``.
            fault: A status such as ``503``; ``reset`` before the request is passed on; ``lose``
                the answer to one that was; ``cut`` the answer in its middle; ``hang`` before the
                request is passed on, until the client goes away.
            times: How many.
            skip: How many that match go well before.
        """
        with self._lock:
            self._planned.append(_Plan(re.compile(pattern), fault, times, skip))

    def take(self, request):
        """Return the fault of a request; empty: none."""
        with self._lock:
            self.requests.append(request)
            for plan in self._planned:
                if plan.times and plan.pattern.search(request):
                    plan.skip -= 1
                    if plan.skip < 0:
                        plan.times -= 1
                        return plan.fault
        return ""

    def left(self):
        """Return how many planned faults have not come to pass."""
        return sum(plan.times for plan in self._planned)

    def clear(self):
        """Forget plans and requests."""
        with self._lock:
            self._planned.clear()
            self.requests.clear()


@contextlib.contextmanager
def failing_proxy(upstream):
    """Run a proxy to `upstream`; give its URL, and what is to go wrong there."""
    faults = Faults()
    known = {"faults": faults, "upstream": upstream, "writing": threading.Lock()}
    with serving(_Handler, **known) as port:
        yield f"http://127.0.0.1:{port}", faults


class _Handler(Handler):
    faults: Faults
    upstream: str
    # The emulators test a precondition and write in two steps; real stores do both at once. One
    # write at a time makes that so here too.
    writing: threading.Lock

    def _pass_on(self):
        body = self._body()
        fault = self.faults.take(f"{self.command} {self.path}")
        if fault.isdigit():
            self._answer(int(fault), [], b"")
        elif fault == "reset":
            self._reset()
        elif fault == "hang":
            self.connection.recv(1)
            self._reset()
        else:
            status, headers, data = self._ask(body)
            if fault == "lose":
                self._reset()
            elif fault == "cut":
                self._answer(status, headers, data, sent=len(data) // 2)
                self._reset()
            else:
                self._answer(status, headers, data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _pass_on  # noqa: N815

    def _body(self) -> bytes:
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        if self.headers.get("Transfer-Encoding", "") == "chunked":
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        there = http.client.HTTPConnection(urlsplit(self.upstream).netloc, timeout=30)
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP}
        if body or self.command in ("PUT", "POST"):
            headers["Content-Length"] = str(len(body))
        reads = self.command in ("GET", "HEAD")
        try:
            with contextlib.nullcontext() if reads else self.writing:
                there.request(self.command, self.path, body or None, headers)
                answer = there.getresponse()
                data = answer.read()
            here = f"http://{self.headers['Host']}"
            told = [
                (name, value.replace(self.upstream, here))
                for name, value in answer.getheaders()
                if name.lower() not in _HOP or (self.command == "HEAD" and "length" in name.lower())
            ]
            return answer.status, told, data
        finally:
            there.close()

    def _answer(self, status, headers, data, *, sent=None):
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if not any(name.lower() == "content-length" for name, _ in headers):
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[:sent])

    def _reset(self):
        self.wfile.flush()
        # Closed with unsent data pending: the other side sees a reset, not an end.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()
