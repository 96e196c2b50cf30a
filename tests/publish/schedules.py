"""Publishing on the seeded store: made-up rows, published as jobs do, by several writers."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os

from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.hashes import data_hash
from beam_tfrecord.format.job_file import INPUTS, PUBLICATION
from beam_tfrecord.format.manifest import Manifest, generation_jobs
from beam_tfrecord.format.tally import Tally
from beam_tfrecord.job_state.checkpoints import FinishedShard
from beam_tfrecord.job_state.job import Job, Target
from beam_tfrecord.publish.append import append_to_dataset
from beam_tfrecord.publish.assemble import publish_dataset
from beam_tfrecord.publish.transaction import (
    Note,
    clear_leftovers,
    clear_published,
    finish_publishing,
    published_names,
)
from beam_tfrecord.storage import Lease, exists, lease, put, read_bytes, remove_tree
from tests.helpers.seeded_store import SCHEME, seeded_store

OUT = f"{SCHEME}://bucket/out"
TARGET = Target(OUT)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows that a job publishes, each a line of text; one shard has two of them.

    Attributes:
        name: Of the job, and of its only input file.
        lines: The rows. Those of two jobs have the same sizes.
    """

    name: str
    lines: tuple[bytes, ...]

    @property
    def _job(self):
        known = {"known": Schema(()), "known_examples": len(self.lines)}
        token = data_hash(b"".join(self.lines))[:12]
        return Job(TARGET, TARGET.temporary(token), overwrite=True, **known)

    @property
    def _task(self):
        """What the last step is given: tally, shards and facts."""
        shards = [
            FinishedShard(
                "data", (at,), f"{self._job.directory}/shard-{at}", len(rows), len(piece),
                data_hash(piece), sum(int(data_hash(row), 16) for row in rows), len(piece),
            )
            for at, rows, piece in self._pieces
        ]  # fmt: skip
        return Tally(rows=len(self.lines), records=len(self.lines)), shards

    @property
    def _info(self):
        return {PUBLICATION: f"of {self.name}", INPUTS: [[self.name, 1, "", ""]]}

    @property
    def _pieces(self):
        groups = [(at, self.lines[at : at + 2]) for at in range(0, len(self.lines), 2)]
        return [(at, rows, b"".join(rows)) for at, rows in groups]

    def write(self):
        """Write the rows as `write` does: the lease is held from the beginning."""
        with lease(OUT) as held:
            is_there = published_names(TARGET, f"of {self.name}") is not None
            clear_leftovers(TARGET, keep=None if is_there else self._job.directory)
            if not is_there:
                self._make_shards()
                publish_dataset(self._job, *self._task, lease=held, info=self._info)
                clear_leftovers(TARGET)

    def sink(self):
        """Write the rows as the last step of a pipeline does, which takes the lease at last."""
        self._make_shards()
        with lease(OUT) as held:
            clear_published(TARGET, self._job.directory, held.check)
            if published_names(TARGET, f"of {self.name}") is None:
                publish_dataset(self._job, *self._task, lease=held, info=self._info)
            else:
                finish_publishing(TARGET, self._job.directory, held.check)
            remove_tree(self._job.directory)

    def append(self):
        """Append the rows, unless they are there."""
        manifest = Manifest.load(TARGET.manifest)
        if not any(
            [self.name, 1, "", ""] in of.get(INPUTS, ())
            for of in generation_jobs(TARGET.manifest, manifest)
        ):
            self._append(appends_to=manifest.origin)

    def compact(self):
        """Write all rows of the dataset, in place of all its generations."""
        manifest = Manifest.load(TARGET.manifest)
        if manifest.appended:
            paths = [os.path.join(OUT, shard.path) for shard in manifest.shards]
            lines = sorted(b"".join(map(read_bytes, paths)).splitlines(keepends=True))
            rows = dataclasses.replace(self, lines=tuple(lines))
            rows._append(appends_to=manifest.origin, compacts=True)

    def _append(self, **options):
        job = dataclasses.replace(self._job, **options)
        with lease(OUT, f".lock-{self.name}"):
            self._make_shards()
            with lease(OUT) as held:
                append_to_dataset(job, *self._task, lease=held, info=self._info)
            remove_tree(job.directory)

    def _make_shards(self):
        for at, _, piece in self._pieces:
            path = f"{self._job.directory}/shard-{at}"
            if not exists(path):
                put(path, piece)


ROWS = {
    name: Rows(name, tuple(f"row {number} of {name}\n".encode() for number in range(rows)))
    for name, rows in {"a": 4, "b": 4, "c": 6, "d": 4, "e": 4, "f": 4, "z": 4}.items()
}


@functools.lru_cache(maxsize=16)
def _named(manifest):
    """Return the hash of each file that a manifest names; empty for ``job.json``."""
    value = json.loads(manifest)
    files = dict(value["sidecars"])
    for generation in value["generations"]:
        files |= dict.fromkeys(generation.get("job_files", ["job.json"]), "")
    return files | {
        shard["path"]: shard["xxh64"]
        for split in value["splits"].values()
        for shard in split["shards"]
    }


def rows_of(objects):
    """Return the rows of the dataset at the target, all of whose files must be whole."""
    rows = []
    for name, digest in _named(objects[TARGET.manifest][0]).items():
        data = objects.get(os.path.join(OUT, name), (None, ""))[0]
        assert data is not None, f"{name} is gone"
        assert digest in ("", data_hash(data)), f"{name} is another file"
        rows += data.splitlines(keepends=True) if name.endswith(".tfrecord") else ()
    assert len(set(rows)) == len(rows), "rows are there twice"
    return rows


class Reader:
    """Looks at the dataset after each change."""

    def __init__(self):
        self._before, self._rows = None, []

    def __call__(self, objects):
        """Check that the dataset is whole, and lost no rows unless its manifest was removed."""
        if (manifest := objects.get(TARGET.manifest)) is not None:
            rows = rows_of(objects)
            if manifest != self._before:
                assert set(self._rows) <= set(rows), "rows are gone"
                self._rows = rows
        else:
            self._rows = []
        self._before = manifest


# Names of rows, each with what is done: one writer each.
COMMANDS = [
    ("a write", "b write"),
    ("a sink", "c sink"),
    ("a sink", "a sink", "b write"),
    ("a sink", "c write", "a sink", "b sink"),
]


APPENDS = [
    ("a append", "b append"),
    ("a append", "a append", "b append"),
    ("a append", "b append", "d append", "e compact"),
    ("a append", "b write", "d append"),
    ("a append", "b append", "e compact", "d sink"),
]


def _look_only(held):
    with contextlib.suppress(FileNotFoundError):
        read_bytes(held.path)


# What to put in place of a part of publishing.
FAULTS = {
    "no check of the lease": (Lease, "check", _look_only),
    "no note": (Note, "save", lambda *_: None),
}


def publish(seed, *, commands=COMMANDS, **options):
    """Run commands in writers on a store of a seed, then each again alone.

    Args:
        seed: Decides all.
        commands: Those of one schedule after the other.
        options: Of the schedule.

    Returns:
        How each run of a command ended, and all requests with what became of them.

    Raises:
        AssertionError: A file that the manifest names was not there, rows were lost or there twice,
            or files were left; the message has the seed and the last requests.
    """
    chosen = [command.split() for command in commands[seed % len(commands)]]
    todo = [getattr(ROWS[name], how) for name, how in chosen]
    hows = {how for _, how in chosen}
    is_append = "append" in hows
    with seeded_store(seed, Reader(), **options) as (store, schedule):
        ROWS["c"].write()
        if is_append:
            ROWS["f"].append()
        wanted = set() if hows & {"write", "sink"} else set(rows_of(store.objects))
        writers = schedule.run(todo)
        try:
            if schedule.faults:
                raise schedule.faults[0]
            # Overwrites come first, because appended rows need a dataset. The last one clears up.
            again = sorted(chosen, key=lambda one: "write sink append compact".index(one[1]))
            for name, how in [*again, ("z", "append") if is_append else ("c", "write")]:
                getattr(ROWS[name], how)()
                wanted = set() if how in ("write", "sink") else wanted
                wanted.update(ROWS[name].lines if how != "compact" else ())
                assert wanted <= set(rows_of(store.objects)), "rows are lost"
                names = {path[len(OUT) + 1 :] for path in store.objects}
                left = names - set(_named(store.objects[TARGET.manifest][0])) - {"manifest.json"}
                shown = {name for name in left if not name.startswith(".")}
                # Where a request comes late, what it makes may be known to nobody.
                may_be = is_append and (name != "z" or not options.get("is_prompt", True))
                assert may_be or not shown, f"left: {left}"
            # An append leaves hidden files to the next overwrite: others may work there.
            assert is_append or not left, f"left: {left}"
        except BaseException as error:
            lines = "\n".join(schedule.requests[-60:])
            raise AssertionError(f"seed {seed} of {chosen}: {error!r}\n{lines}") from error
    return [end for writer in writers for end in writer.ends], schedule.requests
