"""HTTP servers on loopback, each in a thread of the tests' own."""

from __future__ import annotations

import contextlib
import http.server
import ssl
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    """A handler that keeps connections, answers at once, and says nothing."""

    protocol_version = "HTTP/1.1"
    # An answer in several small writes waits for acknowledgements between them.
    disable_nagle_algorithm = True

    def handle(self):
        """Serve until the client, or a fault, ends the connection."""
        with contextlib.suppress(OSError, ValueError):
            super().handle()

    def finish(self):
        """Give up what a fault has closed already."""
        with contextlib.suppress(OSError, ValueError):
            super().finish()

    def log_message(self, format, *args):
        """Say nothing."""


@contextlib.contextmanager
def serving(handler, *, host="127.0.0.1", certificate=None, **attributes):
    """Serve on a free port, by a class of handlers with these attributes; give the port."""
    bound = type("Bound", (handler,), attributes)
    server = http.server.ThreadingHTTPServer((host, 0), bound)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
