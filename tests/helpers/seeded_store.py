"""An object store in memory: a seed decides the order of its requests, and their faults.

Writers are threads of which one runs at a time, from one request to the next: which, the seed says.
It also lets requests wait, fail with 503, or succeed without an answer, after which a client sends
them again; lists objects as they were; and kills writers, who then begin their command again as on
another machine. The clock of leases is that of the schedule, and nobody renews a lease: a writer
that waits for long has lost it, and does not know.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import types
import uuid

import pytest

from beam_tfrecord import storage
from beam_tfrecord.errors import BeamTFRecordError
from beam_tfrecord.storage import object_lease, object_store
from beam_tfrecord.storage.object_store import ObjectStore
from beam_tfrecord.storage.paths import Entry

SCHEME = "gs"
_REQUEST_SECONDS, _LONG_SECONDS = 0.02, 200.0
_TRIES = 4


class Killed(BaseException):
    """Ends a writer as its death does: no request of its own comes after."""


class RequestError(Exception):
    """A request that failed, with an HTTP status."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status = status


class Writer(threading.Thread):
    """A process that runs one command, and mostly runs it again after each death.

    Attributes:
        ends: What became of each run: ``done``, ``killed`` (perhaps ``for good``) or an error.
    """

    def __init__(self, schedule, number, command):
        super().__init__(name=f"writer-{number}", daemon=True)
        self.ends = []
        self.wakes = 0.0
        self.is_killed = False
        self.turn = threading.Semaphore(0)
        self._schedule, self._command = schedule, command

    def run(self):
        """Run the command; other writers run while it waits."""
        self.turn.acquire()
        try:
            while not self.ends or self.ends[-1] == "killed":
                self.is_killed = False
                try:
                    self._command()
                    self.ends.append("done")
                except Killed:
                    self.ends.append(
                        "killed" if self._schedule.draw.random() < 2 / 3 else "killed for good"
                    )
                except (BeamTFRecordError, FileNotFoundError) as error:
                    self.ends.append(f"{type(error).__name__}: {error}")
        except BaseException as error:
            self._schedule.faults.append(error)
        finally:
            self._schedule.leave(self)


class Schedule:
    """Decides by a seed who goes on, and what becomes of each request.

    Args:
        seed: Decides all.
        kills: How many deaths there may be.
        is_prompt: Whether requests arrive while the lease is held that was checked before. Else
            each may wait for longer.

    Attributes:
        draw: The random numbers.
        requests: Each request with its writer and what became of it.
        faults: What no writer may see or do.
    """

    def __init__(self, seed, *, kills=2, is_prompt=True):
        self.requests, self.faults, self.now = [], [], 0.0
        self.draw = random.Random(seed)
        self._kills, self._is_prompt = kills, is_prompt
        # Some schedules are quiet, so that a rare fault meets no other.
        self._rate = self.draw.choice([0.0, 0.01, 0.05])
        self._writers, self._ended = [], threading.Semaphore(0)
        self._dies_at, self._deaths = None, 0

    def run(self, commands):
        """Run each command in a writer of its own, to the end; return the writers."""
        writers = [Writer(self, number, command) for number, command in enumerate(commands)]
        self._writers = list(writers)
        for writer in writers:
            writer.start()
        self._next().turn.release()
        self._ended.acquire()
        for writer in writers:
            writer.join()
        return writers

    @contextlib.contextmanager
    def killed_at(self, number):
        """Kill this process, with all its threads, at one of its next requests."""
        self._dies_at = len(self.requests) + number
        with contextlib.suppress(Killed):
            yield
        self._dies_at = None
        self._deaths += 1

    def leave(self, writer):
        """Let the others go on after the end of a writer."""
        self._writers.remove(writer)
        (self._next().turn if self._writers else self._ended).release()

    def wait(self, seconds):
        """Let others go on; the writer that waits may be next."""
        writer = threading.current_thread()
        if not isinstance(writer, Writer):
            self.now += seconds
            return
        if writer.is_killed:
            raise Killed
        writer.wakes = self.now + seconds
        following = self._next()
        if following is not writer:
            following.turn.release()
            writer.turn.acquire()

    def _next(self):
        awake = [writer for writer in self._writers if writer.wakes <= self.now]
        if not awake:
            self.now = min(writer.wakes for writer in self._writers)
            awake = [writer for writer in self._writers if writer.wakes <= self.now]
        return self.draw.choice(awake)

    def fate(self, what, path):
        """Wait for the turn of a request; return what becomes of it: empty, as it should be."""
        writer = threading.current_thread()
        if not isinstance(writer, Writer):
            is_dead = self._dies_at is not None and len(self.requests) >= self._dies_at
            self.requests.append(f"{what} {path}")
            return "kill before" if is_dead else ""
        may_wait = not self._is_prompt or (what, path.rpartition("/")[2]) == ("get", ".lock")
        is_long = may_wait and self.draw.random() < self._rate
        self.wait(_LONG_SECONDS if is_long else 0.0)
        self.now += _REQUEST_SECONDS
        fate = ""
        if self.draw.random() < self._rate:
            fate = self.draw.choice(["503", "lose", "list late", "kill before", "kill after"])
        if fate.startswith("kill"):
            self._kills -= 1
            fate = fate if self._kills >= 0 else ""
            writer.is_killed = bool(fate)
        self.requests.append(f"{writer.name} {what} {path} {fate}")
        return fate

    def machine(self):
        """Return a name for the machine of a writer, which is another one after each death."""
        writer = threading.current_thread()
        return f"{writer.name} {len(getattr(writer, 'ends', ())) + self._deaths}"


class SeededStore(ObjectStore):
    """The requests of the store.

    Attributes:
        objects: Bytes and version by URL.
    """

    def __init__(self, schedule, check):
        self.objects = {}
        self._schedule, self._check = schedule, check
        self._versions = itertools.count(1)
        self._log = []

    def _ask(self, what, path, answer):
        """Send a request until there is an answer, as clients do."""
        for _ in range(_TRIES):
            fate = self._schedule.fate(what, path)
            if fate == "kill before":
                raise Killed
            if fate == "503":
                continue
            try:
                found = answer(fate)
            except RequestError:
                if fate in ("", "list late"):
                    raise
                found = None
            if fate == "kill after":
                raise Killed
            if fate != "lose":
                return found
        raise RequestError(503)

    def _set(self, path, value):
        """Change an object, and check what must hold at every moment."""
        self._log.append((path, self.objects.pop(path, None)))
        if value is not None:
            self.objects[path] = (value, str(next(self._versions)))
        self._check(self.objects)

    def _get(self, path, version=""):
        if path not in self.objects:
            raise RequestError(404)
        if version not in ("", self.objects[path][1]):
            raise RequestError(412)
        return self.objects[path]

    def client_errors(self):
        return (RequestError,)

    def status_code(self, error):
        return error.status

    def head(self, path):
        data, version = self._ask("head", path, lambda _: self._get(path))
        return Entry(path, len(data), version)

    def download(self, path, sink, span, version):
        data, _ = self._ask("get", path, lambda _: self._get(path, version))
        sink.write(data[slice(*span)] if span else data)

    def listed(self, path, *, is_deep):
        for name, value in sorted(self._ask("list", path, self._seen).items()):
            if name.startswith(path):
                rest, slash, _ = name[len(path) :].partition("/")
                if is_deep or not slash:
                    yield Entry(name, len(value[0]), value[1])
                else:
                    yield Entry(f"{path}{rest}/", 0, "")

    def _seen(self, fate):
        """Return the objects, or those before the last changes."""
        seen = dict(self.objects)
        if fate == "list late":
            for path, old in reversed(self._log[-1 - self._schedule.draw.randrange(4) :]):
                seen.pop(path, None)
                seen |= {} if old is None else {path: old}
        return seen

    def put(self, path, data, version):
        def answer(_):
            if version is not None and version != self.objects.get(path, (b"", ""))[1]:
                raise RequestError(412)
            self._set(path, data)
            return self.objects[path][1]

        return self._ask("put", path, answer)

    def delete(self, path, version):
        def answer(_):
            self._get(path, version)
            self._set(path, None)

        self._ask("delete", path, answer)

    def copy(self, source, target):
        self._ask("copy", target, lambda _: self._set(target, self._get(source)[0]))

    def begin_upload(self, path):
        raise NotImplementedError("files of tests are small")

    send_part = finish_upload = cancel_upload = begin_upload


@contextlib.contextmanager
def seeded_store(seed, check, **options):
    """Put a store in place of that of ``gs://``; give it with its schedule.

    Args:
        seed: Decides all.
        check: Is called with all objects after each change.
        options: Of the `Schedule`.
    """
    schedule = Schedule(seed, **options)
    store = SeededStore(schedule, check)
    clock = types.SimpleNamespace(monotonic=lambda: schedule.now, sleep=schedule.wait)
    identifiers = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(storage._OBJECT_STORES, SCHEME, store)
        patch.setattr(object_lease, "time", clock)
        patch.setattr(object_lease, "_LOOK_SECONDS", 15.0)
        patch.setattr(object_lease, "_machine", schedule.machine)
        patch.setattr(object_lease, "_renew", lambda *_: None)
        # Copies and removals, otherwise of several threads, are those of the writer in order.
        patch.setattr(object_store, "run_all", lambda act, items: [act(item) for item in items])
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(int=identifiers.getrandbits(128)))
        yield store, schedule
