"""Where a dataset goes: the names of its files, and its temporary directory."""

from __future__ import annotations

import dataclasses
import os

from beam_tfrecord.errors import TargetExists, UsageError
from beam_tfrecord.manifest import MANIFEST_NAME
from beam_tfrecord.storage import exists, is_directory, list_names, output_path

TEMPORARY_PREFIX = ".tmp-"


@dataclasses.dataclass(frozen=True)
class Target:
    """The place of a dataset.

    Attributes:
        directory: Absolute path or URL.
        prefix: Start of every file name if the dataset has a file prefix as in Beam; else None.
    """

    directory: str
    prefix: str | None = None

    def path(self, name: str) -> str:
        """Return the path of a file of the dataset, such as ``manifest.json``."""
        return os.path.join(self.directory, self.name(name))

    def name(self, name: str) -> str:
        """Return a file's name relative to the directory."""
        return name if self.prefix is None else f"{self.prefix}-{name}"

    @property
    def output(self) -> str:
        """The directory, or the path that all files begin with."""
        return self.directory if self.prefix is None else os.path.join(self.directory, self.prefix)

    @property
    def manifest(self) -> str:
        """Path of the manifest."""
        return self.path(MANIFEST_NAME)

    def temporary(self, token: str) -> str:
        """Return the temporary directory of a job: sorted runs, checkpoints, unpublished shards.

        Args:
            token: Name of the job, hexadecimal digits.
        """
        prefix = "" if self.prefix is None else f"{self.prefix}-"
        return os.path.join(self.directory, f"{TEMPORARY_PREFIX}{prefix}{token}")

    def leftovers(self) -> list[str]:
        """Return the temporary directories of jobs that did not end."""
        beginning = os.path.basename(self.temporary(""))
        paths = [
            os.path.join(self.directory, name)
            for name in list_names(self.directory)
            # Tokens have no dash: other names are those of a longer prefix.
            if name.startswith(beginning) and "-" not in name[len(beginning) :]
        ]
        return [path for path in paths if is_directory(path)]


def directory_target(output: str | os.PathLike[str]) -> Target:
    """Return the target of an output that is a directory.

    Raises:
        UsageError: It is a file, or on a filesystem that cannot be written to.
    """
    directory = output_path(output)
    if exists(directory) and not is_directory(directory):
        raise UsageError(f"output {os.fspath(output)!r} is a file: give a directory")
    return Target(directory)


def sink_target(output: str | os.PathLike[str]) -> Target:
    """Return the target of a sink: a directory if it ends in ``/`` or is one, else a prefix."""
    text = os.fspath(output)
    path = output_path(text)
    if text.endswith("/") or is_directory(path):
        return directory_target(text)
    directory, prefix = os.path.split(path)
    return Target(directory, prefix)


def check_free(target: Target, *, overwrite: bool) -> None:
    """Refuse a target that holds a dataset.

    Raises:
        TargetExists: A dataset is there, and it is not to be overwritten.
    """
    if exists(target.manifest) and not overwrite:
        raise TargetExists(
            f"{target.directory!r} already holds another dataset: pass --overwrite to replace it, "
            "or choose another output"
        )
