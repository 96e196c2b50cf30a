"""Lists the input files of paths, globs and directories, local or remote, in a fixed order."""

from __future__ import annotations

import dataclasses
import fnmatch
import glob
import os
import pickle
import posixpath
import re
import shlex
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfrecord import storage
from beam_tfrecord.base.text import listed
from beam_tfrecord.errors import UsageError, did_you_mean
from beam_tfrecord.options.sources import FileOptions
from beam_tfrecord.sources.base import InputFile, Source, version_and_state, wanted_columns
from beam_tfrecord.sources.merge_schemas import hive_partitions, partition_of


def as_paths(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return one path or several paths as a tuple of strings."""
    # Dicts and the tables of pandas have keys, and iterate over the names of their columns.
    is_one = isinstance(paths, str | os.PathLike) or hasattr(paths, "keys")
    listed: Any = paths if isinstance(paths, Iterable) and not is_one else (paths,)
    for path in (listed := tuple(listed)):
        if not isinstance(path, str | os.PathLike):
            raise UsageError(
                f"cannot read an input of type {type(path).__name__}, which is not a path: give "
                "data in memory by itself, to write or to ReadFromArrow"
            )
    return tuple(map(os.fspath, listed))


@dataclasses.dataclass(frozen=True)
class FileSource(FileOptions, Source):
    """Base of the sources of files and tables."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "paths", as_paths(self.paths))
        object.__setattr__(self, "columns", wanted_columns(self.columns))

    def files(self) -> Iterator[InputFile]:
        return list_files(as_paths(self.paths), self.suffixes)


def list_files(paths: Sequence[str], suffixes: Sequence[str]) -> Iterator[InputFile]:
    """Yield the files that `paths` name, sorted by name, each once.

    A directory is searched at every depth for files with one of the `suffixes`, which a compression
    suffix may follow. A file that is named directly or matches a glob is listed with any suffix.
    Names below a directory or glob that begin with ``.`` or ``_`` are skipped, because other tools
    name temporary files so.

    Args:
        paths: Files, globs and directories.
        suffixes: Suffixes of the files to find in directories.

    Raises:
        UsageError: A path does not exist, nothing matches, or a file cannot be opened.
    """
    if len({path.partition("://")[0] if storage.is_remote(path) else "" for path in paths}) > 1:
        raise UsageError("inputs lie on several filesystems: give those of one filesystem")
    found: dict[str, storage.Entry | None] = {}
    for path in paths:
        found |= (_remote_files if storage.is_remote(path) else _local_files)(path, suffixes)
    if not found:
        raise UsageError("there is no input: give a file, a directory or a pattern")
    if suffixes and ".zip" not in suffixes:
        refuse_zips(found)
    plain = {path: _plain_path(path) for path in found}
    if len(set(plain.values())) < len(plain):
        raise UsageError(
            "some inputs differ only in the queries of their URLs, which are not part of the names "
            "of files: read them one by one"
        )
    root = _common_directory(list(plain.values()))
    for path in sorted(found, key=plain.__getitem__):
        name, entry = plain[path].removeprefix(root).lstrip("/"), found[path]
        if entry is None:
            yield _input_file(path, name)
        else:
            yield InputFile(path, name, entry.bytes, entry.version, hive_partitions(name))


def _local_files(path: str, suffixes: Sequence[str]) -> dict[str, None]:
    path = path.removeprefix("file://")
    found = dict.fromkeys(map(os.path.abspath, visible_files(path, suffixes)))
    if not found and os.path.isdir(path):
        refuse_zips(visible_files(path))
        kinds = " or ".join(suffixes)
        cure = "check the path, pass --from, or give a pattern"
        raise UsageError(f"no {kinds} files in directory {path!r}: {cure}")
    if not found:
        raise UsageError(not_there(path))
    return found


def _remote_files(path: str, suffixes: Sequence[str]) -> dict[str, storage.Entry]:
    literal, takes_all = storage.absolute_path(path), glob.has_magic(path)
    found = {
        entry.path: entry
        for entry in remote_entries(path)
        if takes_all or entry.path == literal or has_suffix(entry.path, suffixes)
    }
    if not found:
        refuse_zips(entry.path for entry in remote_entries(path))
        shown = storage.public_path(path)
        raise UsageError(f"cannot read {shown!r}: no such file: check the path, or pass --from")
    return found


def refuse_zips(files: Iterable[str]) -> None:
    """Raise an error if one of some files is a zip archive, since none is looked into."""
    for file in files:
        if storage.plain_path(file).lower().endswith(".zip"):
            name, how = file, "unpack it first"
            if storage.is_remote(file):
                name, how = posixpath.basename(storage.plain_path(file)), f"download and {how}"
            raise UsageError(
                f"{storage.public_path(file)!r} is a zip archive: {how}: "
                f"unzip {shlex.quote(name)} -d {shlex.quote(name[:-4])}"
            )


def not_there(path: str) -> str:
    """Return the message for a local path or pattern that names no file, with the likely one."""
    if glob.has_magic(path):
        hint = "check the path"
        if glob.glob(path):
            hint = f"it matches directories: pass {path.rstrip('/') + '/*.parquet'!r} or the like"
        return f"cannot read {path!r}: no file matches this pattern: {hint}"
    directory, name = os.path.split(path.rstrip("/"))
    names = storage.list_names(directory or ".")
    hint = did_you_mean(name, names, "check the path")
    return f"cannot read {path!r}: no such file: {hint}"


def _plain_path(path: str) -> str:
    """Return the path of a URL, in which names are those that a user sees."""
    plain = storage.plain_path(path)
    return plain.partition("://")[2] or plain


def _is_hidden(path: str) -> bool:
    name = os.path.basename(path)
    return name.startswith("_") or storage.is_hidden(name)


def visible_matches(pattern: str, is_hidden: Callable[[str], bool] = _is_hidden) -> Iterator[str]:
    """Yield the matches of a glob, without hidden names in the parts that its wildcards match.

    A file may have a name that is a glob: then it is the only match.
    """
    if os.path.lexists(pattern):
        yield pattern
        return
    parts = pattern.split(os.sep)
    literal = next((at for at, part in enumerate(parts) if glob.has_magic(part)), len(parts))
    for hit in glob.iglob(pattern, recursive=True):
        if not any(map(is_hidden, hit.split(os.sep)[literal:])):
            yield hit


def visible_files(path: str, suffixes: Sequence[str] = ("",)) -> Iterator[str]:
    """Yield the files of a local directory, or those that a pattern matches, in order."""
    for hit in visible_matches(path):
        yield from _walk(hit, suffixes) if os.path.isdir(hit) else [hit]


def _walk(directory: str, suffixes: Sequence[str]) -> Iterator[str]:
    seen = {os.path.realpath(directory)}
    for parent, children, names in os.walk(directory, onerror=_raise_unreadable, followlinks=True):
        children[:] = sorted(child for child in children if not _is_hidden(child))
        # A link to a parent directory would be followed without end. Every directory is read once.
        for child in list(children):
            target = os.path.realpath(os.path.join(parent, child))
            if target in seen:
                children.remove(child)
            seen.add(target)
        for name in sorted(names):
            if not _is_hidden(name) and has_suffix(name, suffixes):
                yield os.path.join(parent, name)


# Files with these suffixes describe the others.
_DESCRIPTIONS = (".md", ".pbtxt")


def skipped_files(folders: Iterable[str], suffixes: Sequence[str]) -> list[str]:
    """Return the names of files in local directories that `list_files` does not list.

    Hidden files, and files that describe the others, are left out.
    """
    known = (*suffixes, *_DESCRIPTIONS)
    hidden = storage.is_hidden
    return sorted(
        os.path.relpath(file, folder)
        for folder in folders
        for file in visible_files(folder)
        if not has_suffix(file, known) and not hidden(os.path.basename(file))
    )


def _raise_unreadable(error: OSError) -> None:
    raise UsageError(f"cannot read directory {error.filename!r}: {error.strerror}") from error


COMPRESSION_SUFFIXES = (".gz", ".bz2", ".zst", ".xz", ".lz4")
# TensorFlow Datasets and others name files so: the number follows the suffix, and is before or
# after the one of the compression.
_NUMBERED = re.compile(r"(\.tfrec(?:ords?)?(?:\.(?:gz|bz2|zst|xz|lz4))?)-\d+-of-\d+(?=\.|$)")


def suffix_of(name: str) -> str:
    """Return the suffix of a name in lower case, without a compression suffix or a number."""
    return posixpath.splitext(_uncompressed(name))[1]


# Not the number of a picture in a video: there are as many as pictures.
_SUFFIX = re.compile(r"\.[a-z][\w-]{0,9}")


def kind_of_name(name: str) -> str:
    """Return the suffix of a name, or what to call a name without one."""
    suffix = suffix_of(name)
    return suffix if _SUFFIX.fullmatch(suffix) else "without a suffix"


def counts_text(counts: Mapping[str, int]) -> str:
    """Return the numbers of some kinds of files: ``1 .heic, 2 without a suffix``."""
    return listed([f"{count:,} {what}" for what, count in counts.items()])


def has_suffix(name: str, suffixes: Sequence[str]) -> bool:
    """Return whether `name`, without a compression suffix, ends in one of `suffixes`."""
    return _uncompressed(name).endswith(tuple(suffixes))


def _uncompressed(name: str) -> str:
    name = _NUMBERED.sub(r"\1", storage.plain_path(name).lower())
    stem, last = posixpath.splitext(name)
    return stem if last in COMPRESSION_SUFFIXES else name


def _common_directory(paths: Sequence[str]) -> str:
    """Return the deepest directory above all `paths` that is not a Hive partition ``key=value``.

    So a single partition has the same names and columns as it has among other partitions.
    """
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    while partition_of(os.path.basename(root)):
        root = os.path.dirname(root)
    return root


def _input_file(path: str, name: str) -> InputFile:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the name of {path!r} is not utf-8: rename the file") from error
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"cannot read {path!r}: it is not a regular file: copy it into one")
        with open(path, "rb"):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot read {path!r} ({error.strerror}): correct it, or leave it out"
        ) from error
    version, state = version_and_state(status)
    return InputFile(
        path=path,
        name=name,
        bytes=status.st_size,
        version=version,
        partitions=hive_partitions(name),
        state=state,
    )


def remote_entries(path: str) -> Iterator[storage.Entry]:
    """Yield the visible files of a URL, which names a file, a directory or a pattern."""
    path = storage.absolute_path(path)
    if storage.is_web(path):
        if (entry := storage.status(path)) is None:
            raise UsageError(
                f"cannot read {storage.public_path(path)!r}: no such file: a URL names one file, "
                "because web servers do not list theirs: give the URL of each file"
            )
        yield entry
        return
    bucket, _, key = path.partition("://")[2].partition("/")
    if glob.has_magic(bucket):
        raise UsageError(f"cannot read {path!r}: the name of a bucket cannot be a pattern")
    entry = storage.status(path) if key else None
    if entry is not None:
        yield entry
    elif glob.has_magic(key):
        yield from _matches(path.removesuffix(key).rstrip("/"), key)
    else:
        yield from _visible(path, storage.list_files(path))


def _matches(base: str, pattern: str) -> Iterator[storage.Entry]:
    parts = pattern.split("/")
    literal = next(at for at, part in enumerate(parts) if glob.has_magic(part))
    root = "/".join([base, *parts[:literal]])
    for entry in _visible(root, storage.list_files(root)):
        if _matches_parts(entry.path[len(root) + 1 :].split("/"), parts[literal:]):
            yield entry


def _matches_parts(names: Sequence[str], pattern: Sequence[str]) -> bool:
    """Return whether a path or a directory above it matches; ``**`` matches any number of names."""
    if not pattern:
        return True
    if pattern[0] != "**":
        is_like = bool(names) and fnmatch.fnmatchcase(names[0], pattern[0])
        return is_like and _matches_parts(names[1:], pattern[1:])
    return any(_matches_parts(names[at:], pattern[1:]) for at in range(len(names)))


def _visible(root: str, entries: Iterator[storage.Entry]) -> Iterator[storage.Entry]:
    """Yield the entries whose paths below `root` have no name that begins with ``.`` or ``_``."""
    for entry in entries:
        if not any(part.startswith((".", "_")) for part in entry.path[len(root) + 1 :].split("/")):
            yield entry


# Largest list of files in a pipeline, because services refuse pipelines of 10 MB and more.
MOST_SENT_BYTES = 2**20


@dataclasses.dataclass(frozen=True)
class Listing:
    """The files of a source, as listed once at the start of a job."""

    outlines: tuple[InputFile, ...] = ()
    bytes: int = 0
    sent: tuple[InputFile, ...] | None = None


def list_input(source: Source) -> Listing:
    """List the files of a source."""
    outlines: list[InputFile] = []
    sent: list[InputFile] = []
    left_bytes = MOST_SENT_BYTES
    for file in source.files():
        outlines.append(file.outline())
        if left_bytes >= 0:
            sent.append(file)
            left_bytes -= len(pickle.dumps(file))
    # Unstable input, such as a database, has no paths of files, so workers list it themselves.
    is_sent = left_bytes >= 0 and source.is_stable
    size = sum(file.bytes for file in outlines)
    return Listing(tuple(outlines), size, tuple(sent) if is_sent else None)
