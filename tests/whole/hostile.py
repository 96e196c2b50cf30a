"""Files that anyone may have made, under hashes that are right, and what commands make of them.

Whatever is in a manifest, every command ends soon, in one line and exit code 1, or does as it is
told where that does no harm; and it opens nothing outside of the dataset.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import random
import re
import shutil
import signal
import sys
from typing import Any

import pyarrow as pa
from click.testing import CliRunner

from beam_tfrecord.cli.main import cli
from beam_tfrecord.format import manifest as manifests
from tests.helpers.made_datasets import make_dataset

TABLE = pa.table(
    {
        "id": list(range(12)),
        "name": [None if row == 3 else f"row {row}" for row in range(12)],
        "parts": [[0.5] * (row % 3) for row in range(12)],
    }
)
SPLITS = {"train": list(range(8)), "test": [8, 9, 10, 11]}
MOST_SECONDS = 30

_DEEP = "\0deep"
_DEEP_TEXT = "[" * 20_000 + "]" * 20_000
_VALUES = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, 2**70, -(2**63), 10**400),
    *(0.5, 1e308, float("nan"), float("inf"), "", "x", "\0", "a\nb", "é" * 300, "0" * 16),
    *([], {}, [[]], [{}], {"": None}, [None], ["x"], {"x": "x"}, _DEEP),
    *("../x", "/etc/passwd", "/dev/zero", "..", ".", "a/../../b", "./a", "a//b", "link", "pipe"),
    *("CON", "file:///etc/passwd", "gs://bucket/x", "~", "$HOME", "a" * 5000, "tensor", "float128"),
    *({"list": {"list": "int64"}}, {"tensor": "O", "shape": [1]}, {"fixed_size_list": "x"}),
    *({"extension": "arrow.uuid", "storage": "text"}, {"map": []}, {"struct": {"a": 1}}),
    *({"fixed_size_list": "int8", "size": 2**40}, "decimal128(99, 3)", "fixed_size_binary[-1]"),
)


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Exit code.
        lines: What it said on standard error and output.
        opened: Files outside of the directory that it opened.
    """

    code: int
    lines: list[str]
    opened: list[str]

    @property
    def is_right(self):
        """Whether it ended as a command may: well, with faults, or with one line that says why."""
        return self.code in (0, 1) and self.is_quiet

    @property
    def is_quiet(self):
        """Whether it said at most one error, none if it went well, and opened nothing else."""
        errors = [line for line in self.lines if line.startswith("error:")]
        is_known = not re.search(r"unexpected \w+Error|Traceback", "\n".join(self.lines))
        return len(errors) <= min(self.code, 1) and is_known and not self.opened


class Watch:
    """Notes what is opened outside of some directories; one for the whole process."""

    _one: Watch | None = None

    def __init__(self):
        self.inside = ()
        self.opened = []
        sys.addaudithook(self._note)

    @classmethod
    def one(cls):
        """Return it: an audit hook stays for ever."""
        cls._one = cls._one or cls()
        return cls._one

    def _note(self, event, arguments):
        if event == "open" and self.inside and isinstance(arguments[0], (str, bytes)):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if path.startswith(("/etc/passwd", "/dev/zero")) or path.endswith("outside"):
                self.opened.append(path)


def run(*arguments, directory):
    """Run a command in this process, for a bounded time."""
    watch = Watch.one()
    watch.inside, watch.opened = (str(directory),), []
    old = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(MOST_SECONDS)
    try:
        done = CliRunner().invoke(cli, list(map(str, arguments)))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
        watch.inside = ()
    if isinstance(done.exception, TimeoutError):
        return Ended(-1, ["timed out"], watch.opened)
    return Ended(done.exit_code, done.output.splitlines(), watch.opened)


def _too_long(number, frame):
    raise TimeoutError("a command took too long")


def commands(dataset, sound, out):
    """Yield the commands that read a dataset."""
    yield "verify", dataset
    yield "show", dataset
    yield "head", dataset
    yield "diff", dataset, sound
    yield "repair", dataset, out
    yield "write", dataset, out.with_name(f"{out.name}-again"), "--dry-run"


def check_writing(place, table, command):
    """Run a command that writes where something hostile is: it refuses, or replaces it wholly.

    Args:
        place: A dataset, or a stage.
        table: Input.
        command: ``write`` or ``extract``.

    Returns:
        The exit codes without and with ``--overwrite``.

    Raises:
        AssertionError: It crashed, said more than one line, or left what is not sound.
    """
    before = sorted(path.name for path in place.iterdir())
    refused = run(command, table, place, directory=place)
    assert refused.code in (1, 2), (command, refused)
    assert refused.is_quiet, (command, refused)
    assert sorted(path.name for path in place.iterdir()) == before, (command, refused)
    replaced = run(command, table, place, "--overwrite", directory=place)
    assert replaced.code in (0, 1, 2), (command, replaced)
    assert replaced.is_quiet, (command, replaced)
    if replaced.code == 0:
        # Shards that only a damaged manifest names are nobody's: `verify` lists them.
        *faults, _ = run("verify", place, directory=place).lines
        assert all("not in its manifest: remove it" in fault for fault in faults), faults
    return [refused.code, replaced.code]


def make(directory):
    """Write a sound dataset, and a file outside of it."""
    make_dataset(directory / "sound", TABLE, splits=SPLITS)
    (directory / "outside").write_bytes(b"not to be read")
    return directory / "sound"


def paths_of(value, path=()):
    """Yield the way to every value inside of a JSON value."""
    inside = (
        value.items() if isinstance(value, dict)
        else enumerate(value) if isinstance(value, list) else ()
    )  # fmt: skip
    for key, one in inside:
        yield (*path, key)
        yield from paths_of(one, (*path, key))


def changed(value: Any, draw: random.Random) -> Any:
    """Return a copy of a JSON value with one to three places changed."""
    new = copy.deepcopy(value)
    for _ in range(draw.choice((1, 1, 2, 3))):
        ways = list(paths_of(new))
        if not ways:
            return new
        *above, key = draw.choice(ways)
        place = new
        for step in above:
            place = place[step]
        action = draw.random()
        if action < 0.1:
            del place[key]
        elif action < 0.2:
            other = draw.choice(ways)
            found = new
            for step in other:
                found = found[step]
            place[key] = copy.deepcopy(found)
        elif action < 0.3 and isinstance(place, dict):
            place[draw.choice(("x", "path", "name", "xxh64", ""))] = draw.choice(_VALUES)
        else:
            place[key] = copy.deepcopy(draw.choice(_VALUES))
    return new


def sealed(value, seal):
    """Return the text of a manifest under its own right hash, wherever it can have one."""
    try:
        text = seal({key: one for key, one in value.items() if key != "xxh64"})
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError):
        text = json.dumps(value)
    return text.replace(json.dumps(_DEEP), _DEEP_TEXT)


def write_changed(dataset, draw):
    """Change the manifest of a dataset or of a stage at random, and make its hash right."""
    path = dataset / "manifest.json"
    value = json.loads(path.read_text())
    text = sealed(changed(value, draw), manifests.sealed)
    path.write_text(text, "utf-8", "surrogatepass")


def odd_things(path):
    """Return what can be put in place of a file, by what it is."""

    def link_to(target):
        return lambda: path.symlink_to(target)

    return {
        "pipe": lambda: os.mkfifo(path),
        "directory": path.mkdir,
        "endless device": link_to("/dev/zero"),
        "link to itself": link_to(path.name),
        "link to nothing": link_to("nothing"),
        "link to a directory": link_to("."),
        "empty file": path.touch,
        "any bytes": lambda: _fill(path, b"\x00\xff\n{" * 99),
        "deep nesting": lambda: _fill(path, b'{"a":' * 10**5),
    }


def _fill(path, data):
    path.write_bytes(data)


def copied(sound, target):
    """Return a fresh copy of a dataset."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(sound, target, symlinks=True)
    return target
