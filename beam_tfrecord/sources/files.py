"""Listing of input files: paths, globs and directories to `InputFile`s in one fixed order."""

from __future__ import annotations

import glob
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence

from beam_tfrecord.errors import UsageError
from beam_tfrecord.sources.base import InputFile
from beam_tfrecord.sources.hive import hive_partitions, partition_of


def as_paths(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return one or many paths as a tuple of strings."""
    if isinstance(paths, str | os.PathLike):
        return (os.fspath(paths),)
    return tuple(os.fspath(path) for path in paths)


def list_files(paths: Sequence[str], suffixes: Sequence[str]) -> Iterator[InputFile]:
    """Yield the files that `paths` name, sorted by name, each once.

    A directory is searched through and through for `suffixes` (a further compression suffix is
    allowed); a file or the match of a glob is taken whatever its name. Names that begin with
    ``.`` or ``_`` below a directory or glob are left out: they are other tools' temporary files.

    Raises:
        UsageError: A path does not exist, or nothing matches.
    """
    found = sorted({os.path.abspath(path) for named in paths for path in _resolve(named, suffixes)})
    if not found:
        raise UsageError(f"no input files match {' '.join(map(repr, paths))}: check the path")
    root = _common_directory(found)
    for path in found:
        name = os.path.relpath(path, root).replace(os.sep, "/")
        yield _input_file(path, name)


def _resolve(path: str, suffixes: Sequence[str]) -> list[str]:
    if "://" in path and not path.startswith("file://"):
        raise UsageError(f"cannot read {path!r}: only local files are supported as input")
    path = path.removeprefix("file://")
    if os.path.isdir(path):
        return list(_walk(path, suffixes))
    if os.path.exists(path):
        return [path]
    matches = [hit for hit in glob.glob(path, recursive=True) if not _is_hidden(hit)]
    if not matches:
        hint = "no file matches this pattern" if glob.has_magic(path) else "no such file"
        raise UsageError(f"cannot read {path!r}: {hint}")
    files = [hit for hit in matches if os.path.isfile(hit)]
    directories = [hit for hit in matches if os.path.isdir(hit)]
    return files + [hit for directory in directories for hit in _walk(directory, suffixes)]


def _walk(directory: str, suffixes: Sequence[str]) -> Iterator[str]:
    seen = 0
    for parent, children, names in os.walk(directory, onerror=_raise_unreadable, followlinks=True):
        children[:] = sorted(child for child in children if not _is_hidden(child))
        for name in names:
            if not _is_hidden(name) and has_suffix(name, suffixes):
                seen += 1
                yield os.path.join(parent, name)
    if not seen:
        kinds = " or ".join(suffixes)
        raise UsageError(f"no {kinds} files in directory {directory!r}: check the path, or --from")


def _raise_unreadable(error: OSError) -> None:
    raise UsageError(f"cannot read directory {error.filename!r}: {error.strerror}") from error


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith((".", "_"))


COMPRESSION_SUFFIXES = (".gz", ".bz2", ".zst", ".xz", ".lz4")


def has_suffix(name: str, suffixes: Sequence[str]) -> bool:
    """Tell whether `name` ends in one of `suffixes`, a compression suffix aside."""
    stem, last = posixpath.splitext(name.lower())
    return (stem if last in COMPRESSION_SUFFIXES else name.lower()).endswith(tuple(suffixes))


def _common_directory(paths: Sequence[str]) -> str:
    """Return the deepest directory above all `paths` that is not a partition itself.

    So one partition read alone gives the same names and columns as among its neighbours.
    """
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    while partition_of(os.path.basename(root)):
        root = os.path.dirname(root)
    return root


def _input_file(path: str, name: str) -> InputFile:
    try:
        status = os.stat(path)
        with open(path, "rb"):
            pass
    except OSError as error:
        raise UsageError(f"cannot read {path!r}: {error.strerror}") from error
    return InputFile(
        path=path,
        name=name,
        bytes=status.st_size,
        version=str(status.st_mtime_ns),
        partitions=hive_partitions(name),
    )
