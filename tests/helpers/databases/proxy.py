"""A TCP proxy on loopback that cuts connections where a test says so."""

import contextlib
import socket
import threading

CHUNK = 4096


class Proxy:
    """Passes bytes on to a port, and cuts a connection after some bytes of answers.

    Args:
        port: Where to connect to.
        cut_after: Given the number of a connection, from 0: after how many bytes that the server
            sent it is cut; None: never.
    """

    def __init__(self, port, cut_after):
        self._target = port
        self._cut_after = cut_after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.connections = 0
        self.cuts = 0
        self._passing = []
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for thread in self._passing:
            thread.join()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                number, self.connections = self.connections, self.connections + 1
                server = socket.create_connection(("127.0.0.1", self._target))
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                limit = self._cut_after(number)
                for ends in ((client, server, None), (server, client, limit)):
                    self._passing.append(threading.Thread(target=self._pass_on, args=ends))
                    self._passing[-1].start()

    def _pass_on(self, source, target, limit):
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                if limit is not None and passed + len(data) > limit:
                    target.sendall(data[: limit - passed])
                    self.cuts += 1
                    break
                target.sendall(data)
                passed += len(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        # Each end is the source of one thread, which closes it.
        source.close()
