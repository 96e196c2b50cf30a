"""Lists TFRecord files, and finds the datasets that they are shards of.

A file that a manifest beside it lists is a shard of that dataset, however the file was named: by
the directory of the dataset, by a glob or by its own path. The manifest then says its columns and
its split. All other files are of other programs.
"""

from __future__ import annotations

import dataclasses
import glob
import os
from collections.abc import Iterator, Sequence

from beam_tfrecord.errors import DataError
from beam_tfrecord.manifest import MANIFEST_NAME, Manifest, Shard, directory_of, manifest_path
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.files import has_suffix, list_files
from beam_tfrecord.stage import format_at
from beam_tfrecord.storage import (
    absolute_path,
    is_directory,
    is_remote,
    list_names,
    read_small,
)

SUFFIXES = (".tfrecord", ".tfrecords")

_OF_DATASETS = frozenset(("schema.json", "job.json"))
_FORMATS = "beam_tfrecord/"


@dataclasses.dataclass(frozen=True)
class ShardFile(InputFile):
    """A shard of a dataset, or the manifest of a dataset without shards.

    Its digest is the hash in the manifest, and its `stamp`, too, so that a copy of a dataset is the
    same input.
    """

    manifest: str = ""
    split: str = ""
    examples: int = 0

    @property
    def stamp(self) -> tuple[str, str]:
        return self.digest, ""


def is_dataset(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a dataset: its directory, its file prefix or its manifest."""
    text = os.fspath(path)
    if glob.has_magic(text) or text.endswith(SUFFIXES):
        return False
    return format_at(manifest_path(text)).startswith(_FORMATS)


def is_incomplete(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a directory of a dataset whose manifest is missing or damaged."""
    text = os.fspath(path)
    if glob.has_magic(text) or not is_directory(text) or is_dataset(text):
        return False
    names = list_names(text)
    if any(name.startswith(".tmp-") for name in names):
        return True
    # One of these alone may be of others, such as a schema beside CSV files.
    found = len(_OF_DATASETS.intersection(names))
    return found > 1 or (found > 0 and any(has_suffix(name, SUFFIXES) for name in names))


def list_records(paths: Sequence[str]) -> Iterator[InputFile]:
    """Yield the TFRecord files that `paths` name, by name; those of datasets as `ShardFile`."""
    named: list[str] = []
    for path in paths:
        if is_incomplete(path):
            # Its shards are not read as files of other programs, which would lose their types.
            Manifest.load(path)
        named += _shards_of(path) if is_dataset(path) else [path]
    datasets: dict[str, dict[str, tuple[str, Manifest, str, Shard | None]]] = {}
    for file in list_files(named, SUFFIXES, remote=True):
        directory = os.path.dirname(file.path)
        if directory not in datasets:
            datasets[directory] = dict(_listed_in(directory))
        known = datasets[directory].get(file.path)
        yield file if known is None else _shard_file(file, *known)


def _shards_of(path: str) -> list[str]:
    """Return the paths of the shards of a dataset; its manifest if it has none."""
    file = absolute_path(manifest_path(path))
    shards = [os.path.join(directory_of(file), shard.path) for shard in Manifest.load(file).shards]
    for shard in shards:
        # An object that is missing is noticed when it is listed.
        if not is_remote(shard) and not os.path.isfile(shard):
            raise DataError(f"{shard!r} of its dataset is missing: run verify on {path!r}")
    return shards or [file]


def _listed_in(
    directory: str,
) -> Iterator[tuple[str, tuple[str, Manifest, str, Shard | None]]]:
    """Yield the files that the manifests in a directory list, by path, with manifest and split."""
    for name in list_names(directory):
        file = os.path.join(directory, name)
        # A manifest that is damaged is an error, and the one of another program is ignored.
        if not name.endswith(MANIFEST_NAME) or _FORMATS.encode() not in read_small(file):
            continue
        if format_at(file).startswith("beam_tfrecord-"):
            continue
        manifest = Manifest.load(file)
        yield file, (file, manifest, "", None)
        for split, of in manifest.splits.items():
            for shard in of.shards:
                yield os.path.join(directory, shard.path), (file, manifest, split, shard)


def _shard_file(
    file: InputFile, manifest_file: str, manifest: Manifest, split: str, shard: Shard | None
) -> ShardFile:
    if shard is not None and not manifest.compression and file.bytes != shard.bytes:
        raise DataError(
            f"{file.path!r} has {file.bytes:,} bytes but the manifest of its dataset says "
            f"{shard.bytes:,}: run verify to find out why"
        )
    of_shard = {
        "digest": manifest.content if shard is None else shard.xxh64,
        "manifest": manifest_file,
        "split": split,
        "examples": 0 if shard is None else shard.examples,
    }
    return ShardFile(**dataclasses.asdict(file) | of_shard)


def is_empty_dataset(file: InputFile) -> bool:
    """Return whether a listed file is the manifest of a dataset without shards."""
    return isinstance(file, ShardFile) and file.path == file.manifest
