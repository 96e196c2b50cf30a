"""Chooses the source (CSV, Parquet, SQL, …) that can read the inputs of a user.

The choice depends on the suffix of a path, on the scheme of a URL, or on the names of the files in
a directory. It opens no data files. `SOURCES` are the kinds of this package.

Other packages add kinds by entry points of the group `beam_tfrecord.sources`, whose name is the
kind: ``lines = "my_package:Lines"``. A package is imported only if its source may be needed: an
input has its kind, or no kind of this package.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import itertools
import json
import logging
import os
import re
import types
import typing
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

import pyarrow as pa

from beam_tfrecord.base.text import counted, listed
from beam_tfrecord.errors import UsageError, did_you_mean
from beam_tfrecord.format.manifest import MANIFEST_NAME, Manifest, near_datasets
from beam_tfrecord.format.stage import is_stage
from beam_tfrecord.options.jobs import flag_of
from beam_tfrecord.sources.arrow import Arrow
from beam_tfrecord.sources.avro import Avro
from beam_tfrecord.sources.base import InputFile, Source
from beam_tfrecord.sources.coco import Coco
from beam_tfrecord.sources.csv.source import Csv
from beam_tfrecord.sources.delta import Delta
from beam_tfrecord.sources.excel import Excel
from beam_tfrecord.sources.files import (
    as_paths,
    counts_text,
    kind_of_name,
    not_there,
    refuse_zips,
    remote_entries,
    skipped_files,
    suffix_of,
    visible_files,
)
from beam_tfrecord.sources.iceberg import Iceberg
from beam_tfrecord.sources.images.folders import METADATA_NAMES, skipped_by_suffix
from beam_tfrecord.sources.images.source import Images
from beam_tfrecord.sources.json import Json
from beam_tfrecord.sources.lake_table import lake_kind
from beam_tfrecord.sources.memory import OnDisk
from beam_tfrecord.sources.numpy import Numpy
from beam_tfrecord.sources.orc import Orc
from beam_tfrecord.sources.parquet import Parquet
from beam_tfrecord.sources.sql.database import without_password
from beam_tfrecord.sources.sql.source import Sql
from beam_tfrecord.sources.tfrecord import Tfrecord
from beam_tfrecord.sources.tfrecord_files import holds_records, is_dataset, is_incomplete
from beam_tfrecord.sources.webdataset import WebDataset
from beam_tfrecord.storage import is_web, public_path

_LOGGER = logging.getLogger(__name__)

SOURCES: dict[str, type[Source]] = {
    source.kind: source
    for source in (
        *(Csv, Parquet, Arrow, Orc, Avro, Json, Excel, Delta, Iceberg),
        *(Tfrecord, Sql, Numpy, Images, Coco, WebDataset),
    )
}

InputPaths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


KINDS_BY_SUFFIX = {suffix: source.kind for source in SOURCES.values() for suffix in source.suffixes}
_SUFFIXES = ".csv, .parquet, .jpg or another known suffix"
_FILE_SCHEMES = ("file", "gs", "s3", "az", "hdfs", "azfs", "http", "https")

_ICEBERG_METADATA = re.compile(r"(^|/)metadata/[^/]*\.metadata\.json$")

# A directory may contain ten million images, so only the first files decide its kind.
_FILES_LOOKED_AT = 1000

_GROUP = "beam_tfrecord.sources"


class _Others:
    """The sources of other packages, looked up when they are first needed."""

    @functools.cached_property
    def entry_points(self) -> dict[str, metadata.EntryPoint]:
        """The entry points by kind: of this package's kinds none, of others the first package's."""
        found: dict[str, metadata.EntryPoint] = {}
        for entry in sorted(metadata.entry_points(group=_GROUP), key=_package):
            if entry.name in SOURCES or entry.name in found:
                owner = "beam-tfrecord" if entry.name in SOURCES else _package(found[entry.name])
                told = "kind %r of the package %s is not used: %s has it, too"
                _LOGGER.warning(told, entry.name, _package(entry), owner)
            else:
                found[entry.name] = entry
        return found

    @functools.cached_property
    def loaded(self) -> tuple[list[type[Source]], str]:
        """All sources that can be loaded, and the end of a message about those that cannot."""
        sources, failures = [], ""
        for entry in self.entry_points.values():
            try:
                sources.append(_load(entry))
            except UsageError as error:
                failures += f"; {error.message}"
        return sources, failures

    @property
    def kinds(self) -> list[str]:
        """All kinds, those of this package included."""
        return [*SOURCES, *self.entry_points]

    def kind_of(self, path: str) -> str | None:
        """Return the kind of a suffix; None if no source has it."""
        suffix = suffix_of(path)
        if not suffix or suffix in KINDS_BY_SUFFIX:
            return KINDS_BY_SUFFIX.get(suffix)
        sources, _ = self.loaded
        return next((source.kind for source in sources if suffix in source.suffixes), None)

    def unknown(self, path: str, why: str) -> UsageError:
        """Return the error for an input that may be of any kind."""
        _, failures = self.loaded
        return UsageError(
            f"cannot tell what {public_path(path)!r} holds: {why} {_SUFFIXES}: "
            f"pass --from {'|'.join(self.kinds)}, or see docs/recipes.md for sound, video and "
            f"HDF5{failures}"
        )


def _load(entry: metadata.EntryPoint) -> type[Source]:
    where = f"source {entry.name!r} of the package {_package(entry)}"
    try:
        source = entry.load()
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(
            f"cannot load {where} ({reason}): correct or uninstall the package"
        ) from error
    is_class = isinstance(source, type) and issubclass(source, Source)
    is_source = is_class and dataclasses.is_dataclass(source)
    if not is_source or source.kind != entry.name:
        raise UsageError(
            f"cannot use {where}: {entry.value} has to be a dataclass that is a Source, with "
            f"kind = {entry.name!r}"
        )
    found: type[Source] = source
    return found


def _package(entry: metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module


def detect_kind(inputs: InputPaths, *, from_: str | None = None) -> str:
    """Return the kind of source of some inputs, a key of `SOURCES`."""
    paths = as_paths(inputs)
    if not paths:
        raise UsageError("no input: give a file, a directory or a pattern")
    others = _Others()
    if from_ is not None:
        if from_ not in SOURCES and from_ not in others.entry_points:
            hint = did_you_mean(from_, others.kinds, f"the kinds are {', '.join(others.kinds)}")
            raise UsageError(f"cannot read input of kind {from_!r}: {hint}")
        return from_
    path_of: dict[str, str] = {}
    for path in paths:
        path_of.setdefault(_kind_of(path, others), without_password(public_path(path)))
    if len(path_of) > 1:
        (first, one), (second, other), *_ = path_of.items()
        raise UsageError(
            f"{one!r} is {first} but {other!r} is {second}: give inputs of one kind, or pass --from"
        )
    return next(iter(path_of))


def make_source(
    inputs: InputPaths | OnDisk,
    *,
    from_: str | None = None,
    columns: Sequence[str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Source:
    """Return the source that reads some inputs."""
    keywords = dict(options or {})
    if isinstance(inputs, OnDisk):
        if from_ is not None:
            raise UsageError("data in memory needs no kind: leave out --from")
        kind, readable = inputs.source.kind, inputs
    else:
        paths = as_paths(inputs)
        kind = detect_kind(paths, from_=from_)
        readable = OnDisk(_source_of(kind), paths)
    if columns is not None:
        keywords["columns"] = tuple(columns)
    known = _option_names(readable.source).difference(readable.options)
    for keyword in keywords:
        if keyword not in known:
            alike = difflib.get_close_matches(keyword, known, n=1)
            near = ["filter"] if keyword == "where" else alike
            hint = f"did you mean {flag_of(near[0])}?" if near else "leave it out, or check --from"
            raise UsageError(f"{flag_of(keyword)} is not an option of {kind} input: {hint}")
    made = readable.source_of(**keywords)
    if twice := [
        repr(public_path(path)) for path, times in Counter(readable.paths).items() if times > 1
    ]:
        _LOGGER.warning("input is named more than once, and read once: %s", listed(twice))
    if skipped := _skipped_names(readable.source, readable.paths):
        _LOGGER.warning(
            "skipped %s whose %s not end in %s: %s (%s): name them or a pattern to read them, "
            "with --from",
            counted(len(skipped), "file"),
            "name does" if len(skipped) == 1 else "names do",
            " or ".join(readable.source.suffixes),
            counts_text(Counter(map(kind_of_name, skipped))),
            listed(skipped),
        )
    return made


def _skipped_names(source: type[Source], paths: Iterable[str]) -> list[str]:
    """Return the files in directories that are not read because of their names."""
    # Images count theirs. A manifest lists the files of a dataset, and the log those of a table.
    if not source.suffixes or source is Images:
        return []
    folders = filter(os.path.isdir, (path.removeprefix("file://") for path in paths))
    searched = [folder for folder in folders if not is_dataset(folder) and not is_stage(folder)]
    return skipped_files(searched, source.suffixes)


def skipped_counts(source: Source, files: Iterable[InputFile]) -> dict[str, int]:
    """Return how many files of the input are not read because of their names, by suffix."""
    if isinstance(source, Images):
        return skipped_by_suffix(files)
    names = _skipped_names(type(source), getattr(source, "paths", ()))
    return dict(Counter(map(kind_of_name, names)))


def parse_options(
    pairs: Iterable[str], inputs: InputPaths, *, from_: str | None = None
) -> dict[str, Any]:
    """Parse the texts ``name=value`` of options of a source of another package.

    A value is text if the field of the source may be a `str`, and JSON for all others; a JSON array
    becomes a tuple.
    """
    kind = detect_kind(inputs, from_=from_)
    if kind in SOURCES:
        raise UsageError(
            f"--source-option is for sources of other packages: options of {kind} input have flags "
            "of their own"
        )
    hints = typing.get_type_hints(_source_of(kind), localns={"pa": pa})
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or name in options:
            problem = "is there twice" if equals else "has no value: write NAME=VALUE"
            raise UsageError(f"--source-option {name!r} {problem}")
        options[name] = text if _may_be_text(hints.get(name, str)) else _json(name, text)
    return options


def options_of_packages() -> set[str]:
    """Return the names of the options of all sources of other packages that can be loaded."""
    sources, _ = _Others().loaded
    return set().union(*map(_option_names, sources))


def _option_names(source: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(source) if field.init} - {"paths"}


def _may_be_text(hint: Any) -> bool:
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return hint is str or (is_union and str in typing.get_args(hint))


def _json(name: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--source-option {name}={text!r} is not JSON: {error}") from error
    return tuple(value) if isinstance(value, list) else value


def _source_of(kind: str) -> type[Source]:
    # Other packages are looked up in any case, which warns of another source of one of our kinds.
    others = _Others().entry_points
    return SOURCES[kind] if kind not in others else _load(others[kind])


def _kind_of(path: str, others: _Others) -> str:
    if path == "-":
        raise UsageError("standard input cannot be read here: write it to a file first")
    scheme, colon, _ = path.partition("://")
    if scheme == "iceberg" or _ICEBERG_METADATA.search(path):
        return "iceberg"
    if path.startswith("jdbc:") or (colon and scheme not in _FILE_SCHEMES):
        return "sql"
    path = path.removeprefix("file://")
    if os.path.isdir(path):
        return _kind_of_directory(path, visible_files(path), others)
    kind = others.kind_of(path)
    if (kind is None or path.endswith(MANIFEST_NAME)) and is_dataset(path):
        return "tfrecord"
    if kind is not None:
        return kind
    if colon and scheme != "file" and not is_web(path):
        return _kind_of_directory(path, (entry.path for entry in remote_entries(path)), others)
    if not is_web(path) and holds_records(path):
        return "tfrecord"
    if os.path.exists(path) or colon:
        refuse_zips([path])
        raise others.unknown(path, "its name does not end in")
    return _kind_of_files(path, visible_files(path), others)


def _kind_of_directory(path: str, files: Iterable[str], others: _Others) -> str:
    if is_stage(path):
        return "parquet"
    if is_dataset(path) or is_incomplete(path):
        return "tfrecord"
    kind = lake_kind(path) or _kind_of_files(path, files, others)
    if kind == "json" and any(map(is_dataset, near_datasets(path))):
        # The files beside shards whose names have no suffix: the error names the datasets.
        Manifest.load(path)
    return kind


def _kind_of_files(where: str, files: Iterable[str], others: _Others) -> str:
    """Return the kind of the first files of a directory or glob; ignore unknown kinds."""
    looked_at = list(itertools.islice(files, _FILES_LOOKED_AT))
    if not looked_at:
        if os.path.exists(where):
            what = "it holds no file (names that begin with . or _ do not count)"
            raise UsageError(f"cannot read {where!r}: {what}: check the path")
        raise UsageError(not_there(where))
    kinds = [(os.path.basename(file), others.kind_of(file)) for file in looked_at]
    counts = Counter(kind for _, kind in kinds if kind)
    if "images" in counts:
        counts = Counter(kind for name, kind in kinds if kind and name not in METADATA_NAMES)
    # JSON beside files of another kind describes these, such as labels beside images.
    if len(counts) > 1:
        counts.pop("json", None)
    if len(counts) == 1:
        return next(iter(counts))
    if not counts:
        if holds_records(looked_at[0]):
            return "tfrecord"
        refuse_zips(looked_at)
        raise others.unknown(where, "no file in it ends in")
    found = " and ".join(
        f"{kind} ({counted(count, 'file')})" for kind, count in sorted(counts.items())
    )
    raise UsageError(f"{where!r} holds {found}: pass --from to choose one")
