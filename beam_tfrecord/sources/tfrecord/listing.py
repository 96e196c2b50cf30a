"""Lists TFRecord files, and finds the datasets that they are shards of.

A file that a manifest beside it lists is a shard of that dataset, however the file was named: by
the directory of the dataset, by a glob or by its own path. The manifest then says its columns and
its split. All other files are of other programs.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from beam_tfrecord.errors import DataError
from beam_tfrecord.format.manifest import MANIFEST_NAME, Manifest, directory_of, manifest_path
from beam_tfrecord.format.stage import format_at
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.files import has_suffix, list_files
from beam_tfrecord.storage import absolute_path, is_directory, is_remote, list_names, read_small

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
    datasets = functools.cache(lambda directory: dict(_listed_in(directory)))
    for file in list_files(named, SUFFIXES):
        as_shard = datasets(os.path.dirname(file.path)).get(file.path)
        yield file if as_shard is None else as_shard(file)


def _shards_of(path: str) -> list[str]:
    """Return the paths of the shards of a dataset; its manifest if it has none."""
    file = absolute_path(manifest_path(path))
    shards = [os.path.join(directory_of(file), shard.path) for shard in Manifest.load(file).shards]
    for shard in shards:
        # An object that is missing is noticed when it is listed.
        if not is_remote(shard) and not os.path.isfile(shard):
            raise DataError(f"{shard!r} of its dataset is missing: run verify on {path!r}")
    return shards or [file]


def _listed_in(directory: str) -> Iterator[tuple[str, Callable[[InputFile], ShardFile]]]:
    """Yield the files that the manifests in a directory list, each with what makes it a shard."""
    for name in list_names(directory):
        file = os.path.join(directory, name)
        # A manifest that is damaged is an error, and the one of another program is ignored.
        is_ours = name.endswith(MANIFEST_NAME) and _FORMATS.encode() in read_small(file)
        if not is_ours or format_at(file).startswith("beam_tfrecord-"):
            continue
        manifest = Manifest.load(file)
        of_dataset = {"manifest": file, "digest": manifest.content}
        yield file, functools.partial(_shard_file, of_dataset, None)
        for split, of in manifest.splits.items():
            for shard in of.shards:
                facts = {"split": split, "examples": shard.examples, "digest": shard.xxh64}
                nbytes = None if manifest.compression else shard.bytes
                as_shard = functools.partial(_shard_file, of_dataset | facts, nbytes)
                yield os.path.join(directory, shard.path), as_shard


def _shard_file(facts: dict[str, Any], nbytes: int | None, file: InputFile) -> ShardFile:
    if nbytes not in (None, file.bytes):
        raise DataError(
            f"{file.path!r} has {file.bytes:,} bytes but the manifest of its dataset says "
            f"{nbytes:,}: run verify to find out why"
        )
    return ShardFile(**dataclasses.asdict(file) | facts)


def is_empty_dataset(file: InputFile) -> bool:
    """Return whether a listed file is the manifest of a dataset without shards."""
    return isinstance(file, ShardFile) and file.path == file.manifest
