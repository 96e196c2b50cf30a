"""Stops a server whose tests were killed: ``watchdog.py PARENT SERVER DIRECTORY``.

Runs as a script of its own, without this package, for as long as the server does.
"""

import contextlib
import os
import shutil
import signal
import sys
import time

POLL_S = 0.5
# Time for the server to let go of what outlives a process, such as shared memory.
STOP_S = 10.0


def watch(parent, server, directory):
    """Wait until `parent` is gone; then stop the server and remove its files."""
    while os.getppid() == parent:
        time.sleep(POLL_S)
    with contextlib.suppress(ProcessLookupError):
        os.kill(server, signal.SIGQUIT)
        ends = time.monotonic() + STOP_S
        while time.monotonic() < ends:
            # It is a child of nobody's now: the system takes its place away when it ends.
            os.kill(server, 0)
            time.sleep(POLL_S / 5)
        os.kill(server, signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    watch(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
