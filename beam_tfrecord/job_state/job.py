"""`Job`, the description of a job, which every step gets, and `Target`, where its output goes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, Literal

from beam_tfrecord.errors import TargetExists, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.layout import Layout
from beam_tfrecord.format.manifest import MANIFEST_NAME
from beam_tfrecord.format.rejects import RejectBudget
from beam_tfrecord.format.sort_keys import ONE_INPUT, Lineage
from beam_tfrecord.storage import Lease, exists, is_directory, is_remote, list_names, output_path

TEMPORARY_PREFIX = ".tmp-"


@dataclasses.dataclass(frozen=True)
class Target:
    """The location of a dataset: a directory, or a file prefix in a directory."""

    directory: str
    prefix: str | None = None

    def path(self, name: str) -> str:
        """Return the path of a file of the dataset, such as ``manifest.json``."""
        return os.path.join(self.directory, self.name(name))

    def name(self, name: str) -> str:
        """Return the name of a file in the directory: with the prefix if there is one."""
        return name if self.prefix is None else f"{self.prefix}-{name}"

    @property
    def output(self) -> str:
        """The directory, or the path with which the paths of all files begin."""
        return self.directory if self.prefix is None else os.path.join(self.directory, self.prefix)

    @property
    def manifest(self) -> str:
        """Path of the manifest."""
        return self.path(MANIFEST_NAME)

    def temporary(self, token: str) -> str:
        """Return the temporary directory of a job: its plan, checkpoints and unpublished files."""
        prefix = "" if self.prefix is None else f"{self.prefix}-"
        return os.path.join(self.directory, f"{TEMPORARY_PREFIX}{prefix}{token}")

    def leftovers(self) -> list[str]:
        """Return the temporary directories of jobs that still run or did not clean up."""
        beginning = os.path.basename(self.temporary(""))
        paths = [
            os.path.join(self.directory, name)
            for name in list_names(self.directory)
            # Tokens have no dash: names with a dash belong to a longer prefix.
            if name.startswith(beginning) and "-" not in name[len(beginning) :]
        ]
        return [path for path in paths if is_directory(path)]


def directory_target(output: str | os.PathLike[str]) -> Target:
    """Return the target of an output that is a directory."""
    directory = output_path(output)
    # On an object store, an object of that name is not in the way, and a look for it would ask for
    # credentials before the options are checked.
    if not is_remote(directory) and exists(directory) and not is_directory(directory):
        raise UsageError(f"output {os.fspath(output)!r} is a file: give a directory")
    return Target(directory)


def sink_target(output: str | os.PathLike[str]) -> Target:
    """Return the target of a Beam sink: a directory if `output` is one or ends in ``/``.

    Any other output is a file prefix.
    """
    text = os.fspath(output)
    path = output_path(text)
    if text.endswith("/") or is_directory(path):
        return directory_target(text)
    directory, prefix = os.path.split(path)
    return Target(directory, prefix)


def check_free(target: Target, *, overwrite: bool, differences: str = "") -> None:
    """Refuse a target that holds a dataset."""
    if exists(target.manifest) and not overwrite:
        raise TargetExists(
            f"{target.output!r} already holds another dataset: pass --overwrite to replace it, "
            f"or choose another output{differences and f' ({differences})'}"
        )


@dataclasses.dataclass(frozen=True)
class Identity:
    """The origin of a dataset or a stage: its input, settings and writing rules."""

    fingerprint: str = ""
    source: Mapping[str, Any] | None = None
    without_functions: str = ""


@dataclasses.dataclass(frozen=True)
class Job:
    """A job that writes a dataset, or a stage (a directory of Parquet files with the rows).

    `WriteToTFRecord`, `ExtractToParquet`, `write` and `extract` each make a `Job`, and every step
    of the pipeline gets it. A job that appends rows has the origin of its dataset, `appends_to`,
    and so has one that `compacts` the generations of that dataset to one.
    """

    target: Target
    directory: str
    output: Literal["dataset", "stage"] = "dataset"
    layout: Layout = dataclasses.field(default_factory=Layout)
    schema: Schema | None = None
    budget: RejectBudget = RejectBudget()
    identity: Identity = Identity()
    overwrite: bool = False
    appends_to: str = ""
    compacts: bool = False
    exchange: str = "files"
    is_one_pass: bool = False
    info: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    lease: Lease | None = None
    is_resumable: bool = False
    total_bytes: int | None = None
    fitted: str | None = None
    inputs: Lineage = ONE_INPUT
    known: Schema | None = None
    known_examples: int = 0
