"""Finds the sources of other packages, by their entry points of the group `beam_tfrecord.sources`.

The name of an entry point is the kind of its source: ``lines = "my_package:Lines"``. A package is
imported only if its source may be needed: an input has its kind, or no kind of this package.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Collection
from importlib import metadata
from typing import Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.base import Source

GROUP = "beam_tfrecord.sources"
_OURS = "beam-tfrecord"

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass
class Packages:
    """The sources of other packages, looked up when they are first needed.

    Kinds and suffixes that are there already are not used, with a warning that names both packages.
    """

    kinds: Collection[str]
    suffixes: Collection[str]

    @functools.cached_property
    def entry_points(self) -> dict[str, metadata.EntryPoint]:
        """The entry points of sources by kind."""
        found: dict[str, metadata.EntryPoint] = {}
        package_of = dict.fromkeys(self.kinds, _OURS)
        for entry in sorted(metadata.entry_points(group=GROUP), key=_package):
            if entry.name in package_of:
                _warn(f"kind {entry.name!r}", package_of[entry.name], _package(entry))
            else:
                found[entry.name], package_of[entry.name] = entry, _package(entry)
        return found

    @functools.cached_property
    def sources(self) -> dict[str, type[Source] | UsageError]:
        """All sources by kind, or why they cannot be loaded."""
        found: dict[str, type[Source] | UsageError] = {}
        for kind, entry in self.entry_points.items():
            try:
                found[kind] = _load(entry)
            except UsageError as error:
                found[kind] = error
        return found

    @functools.cached_property
    def kinds_by_suffix(self) -> dict[str, str]:
        """Kinds of the suffixes of all sources that can be loaded."""
        found: dict[str, str] = {}
        package_of = dict.fromkeys(self.suffixes, _OURS)
        for kind, source in self.sources.items():
            package = _package(self.entry_points[kind])
            for suffix in () if isinstance(source, UsageError) else source.suffixes:
                if suffix in package_of:
                    _warn(f"suffix {suffix!r}", package_of[suffix], package)
                else:
                    found[suffix], package_of[suffix] = kind, package
        return found

    @property
    def failures(self) -> str:
        """Why sources cannot be loaded, as the last part of a message; empty if all can be."""
        errors = [source for source in self.sources.values() if isinstance(source, UsageError)]
        return "".join(f"; {error.message}" for error in errors)

    def load(self, kind: str) -> type[Source]:
        """Import the source of a kind, and no other."""
        return _load(self.entry_points[kind])


def _load(entry: metadata.EntryPoint) -> type[Source]:
    """Import the source of an entry point."""
    where = f"source {entry.name!r} of the package {_package(entry)}"
    try:
        source = entry.load()
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(
            f"cannot load {where} ({reason}): correct or uninstall the package"
        ) from error
    if not _is_source(source) or source.kind != entry.name:
        raise UsageError(
            f"cannot use {where}: {entry.value} has to be a dataclass that is a Source, with "
            f"kind = {entry.name!r}"
        )
    found: type[Source] = source
    return found


def _is_source(value: Any) -> bool:
    is_source = isinstance(value, type) and issubclass(value, Source)
    return is_source and dataclasses.is_dataclass(value)


def _package(entry: metadata.EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.module


def _warn(what: str, first: str, other: str) -> None:
    _LOGGER.warning("%s of the package %s is not used: %s has it, too", what, other, first)
