"""Stand-ins that the tests of the command line share."""

import inspect

from click.testing import CliRunner

from beam_tfrecord.cli.main import cli
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.manifest_parts import Shard, Split
from beam_tfrecord.jobs import api
from tests.helpers import records


def manifest_of(*, splits=None, **fields):
    splits = {"train": (700, 70_000_000), "test": (300, 30_000_000)} if splits is None else splits
    made = {
        name: Split((Shard(f"{name}-00000-of-00001.tfrecord", rows, nbytes, "0" * 16),))
        for name, (rows, nbytes) in splits.items()
    }
    return records.manifest_of(fields.pop("schema", Schema(())), made, fingerprint="f", **fields)


class FakeJob:
    """Stands for `write`, `plan` and `schema`, and holds them to the real ones' signatures."""

    def __init__(self, monkeypatch):
        self.calls = []
        self.result = manifest_of()
        self.error = None
        for name in ("write", "plan", "schema"):
            monkeypatch.setattr(
                api, name, self._stand_in(name, inspect.signature(getattr(api, name)))
            )

    def _stand_in(self, name, signature):
        def call(*args, **kwargs):
            signature.bind(*args, **kwargs)
            self.calls.append((name, args, kwargs))
            if self.error is not None:
                raise self.error
            return self.result

        return call

    @property
    def arguments(self):
        ((_, _, kwargs),) = self.calls
        return kwargs


def run(*words):
    return CliRunner().invoke(cli, [str(word) for word in words])
