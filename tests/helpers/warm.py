"""Python programs that need not import Beam and pyarrow: forks of a process that has.

`program()` stands for `sys.executable` in a command. It is a small client of a server: it hands
over its arguments, environment, directory and open streams, passes signals on, and ends as the
fork does. Take a real process where the import itself is tested, or where a package is hidden or
a variable is set that Beam looks at as it is imported.
"""

import atexit
import contextlib
import functools
import marshal
import os
import signal
import socket
import sys

_STREAMS = ("stdin", "stdout", "stderr")


@functools.cache
def program():
    """Start the server, which ends with this process, and return the first words of commands."""
    import subprocess
    import tempfile

    place = tempfile.mkdtemp(prefix="warm-")
    server = subprocess.Popen(
        [sys.executable, __file__, place],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # A fork copies no other thread.
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    atexit.register(server.communicate)
    assert server.stdout.read(1)
    return sys.executable, "-I", "-S", __file__, place


def cpu():
    """Return the seconds of CPU that the forks of this process have used."""
    if not program.cache_info().currsize:
        return 0.0
    with open(f"{program()[-1]}/cpu") as file:
        return sum(map(float, file))


def _ask(place, words):
    # A signal waits until there is a process to pass it on to.
    passed = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
    signal.pthread_sigmask(signal.SIG_BLOCK, passed)
    # Before the socket takes the number of a closed stream.
    opened = [number for number, name in enumerate(_STREAMS) if getattr(sys, name)]
    with socket.socket(socket.AF_UNIX) as server, server.makefile("rb") as answers:
        server.connect(f"{place}/socket")
        socket.send_fds(server, [bytes(number in opened for number in range(3))], opened)
        server.sendall(marshal.dumps((words, os.getcwd(), dict(os.environ))))
        pid = marshal.load(answers)
        for number in passed:
            signal.signal(number, lambda number, _: os.kill(pid, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, passed)
        code = marshal.load(answers)
    if code < 0:
        if -code in passed:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _serve(place):
    """Serve clients, each with a fork, where this returns what the client asks for."""
    import select
    import shutil

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{place}/socket")
        listener.listen()
        open(f"{place}/cpu", "w").close()
        os.write(1, b"\n")
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while listener in select.select([listener, 0], [], [])[0]:
            connection, _ = listener.accept()
            with connection:
                if not os.fork():
                    listener.close()
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    return _fork(connection, place)
    shutil.rmtree(place)
    os._exit(0)


def _fork(connection, place):
    """Fork once more; wait for the fork, or end it with its client."""
    import select
    import tempfile

    opened, streams, *_ = socket.recv_fds(connection, 3, 3)
    with connection.makefile("rb") as asked:
        words, directory, environment = marshal.load(asked)
    if pid := os.fork():
        connection.sendall(marshal.dumps(pid))
        while (ended := os.wait4(pid, os.WNOHANG))[0] == 0:
            if select.select([connection], [], [], 0.01)[0]:
                os.kill(pid, signal.SIGKILL)
        with open(f"{place}/cpu", "a") as file:
            file.write(f"{ended[2].ru_utime + ended[2].ru_stime}\n")
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(marshal.dumps(os.waitstatus_to_exitcode(ended[1])))
        os._exit(0)
    for number, name in enumerate(_STREAMS):
        if opened[number]:
            os.dup2(stream := streams.pop(0), number)
            os.close(stream)
        else:
            os.close(number)
            setattr(sys, name, None)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # It may be another in this environment.
    return words


def _run(words):
    import runpy
    import types

    is_safe = words[0] == "-P"
    first, *rest = words[is_safe:]
    place = {"-c": "", "-m": os.getcwd()}.get(first, os.path.dirname(os.path.abspath(first)))
    sys.path[:1] = [] if is_safe else [place]
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if first == "-c":
        sys.argv = [first, *rest[1:]]
        sys.modules["__main__"] = types.ModuleType("__main__")
        exec(rest[0], vars(sys.modules["__main__"]))
    elif first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


def _import():
    import gc
    import importlib
    import logging

    sys.path[0] = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for name in ("cli.main", "jobs.run"):
        importlib.import_module(f"beam_tfrecord.{name}")
    importlib.import_module("apache_beam.runners.portability.fn_api_runner.fn_runner")
    package = importlib.import_module("beam_tfrecord")
    for name in package.__all__:
        getattr(package, name)
    # Beam warns as it is imported, which sets up the log of a program that has none yet.
    logging.root.handlers.clear()
    # A search for garbage would copy all of it in each fork.
    gc.freeze()


if __name__ == "__main__":
    _, place, *words = sys.argv
    if words:
        _ask(place, words)
    _import()
    _run(_serve(place))
