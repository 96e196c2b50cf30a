"""`Manifest`: the content of ``manifest.json``, which describes a dataset and marks it as complete.

The file is written last and atomically; a directory without it contains no dataset. It contains
nothing that depends on the time or the machine, so equal input and settings give equal bytes, but
for the hash of a model that TensorFlow wrote. ``docs/format.md`` defines it.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from beam_tfrecord import storage
from beam_tfrecord.base.text import cell, format_size, html_table, listed
from beam_tfrecord.errors import DataError, UsageError
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.format.hashes import parse_sealed, sealed_lines, sum_text
from beam_tfrecord.format.job_file import read_job
from beam_tfrecord.format.layout import Strata, is_split_name
from beam_tfrecord.format.manifest_parts import RULES, Generation, Shard, Split, check_names
from beam_tfrecord.records.shard_index import index_name

FORMAT = "beam_tfrecord/1"
MANIFEST_NAME = "manifest.json"
# Directories of a fitted preprocessing function in a dataset, named by tensorflow-transform.
TRANSFORM_FN, TRANSFORMED_METADATA, RAW_METADATA = (
    "transform_fn",
    "transformed_metadata",
    "metadata",
)
FITTED = (TRANSFORM_FN, TRANSFORMED_METADATA, RAW_METADATA)
# Lies beside these directories during a job: the categories by column, which the schema takes over.
CATEGORIES_FILE = "categories.json"

# The values of `Manifest.split_by`.
BY_BYTES, BY_GROUP, BY_COLUMN, ASSIGNED = "bytes", "group", "column", "assigned"


# What a manifest says of its first generation.
_FIRST_FACTS = ("fingerprint", "source", "rejects", "rules", "job_files")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """The description of a dataset; by default, of files that another program wrote.

    Attributes:
        fingerprint: Hash of the input and of the settings that shape the output; empty if unknown.
        content: Hash of all examples that does not depend on their order, splits and shards, 16 hex
            digits.
        order: ``shuffled`` or ``source``; ``mixture`` for the result of `mix`.
        seed: The seed of the user.
        compression: ``""`` or ``GZIP``.
        key: Columns that decide the order; None if the position of a row in the input decides it.
        group: Columns that decide the split; None if the bytes of the example decide it.
        place: The property of a row that decides its position in the dataset: ``origin`` (position
            in the input), ``key`` or ``bytes``.
        schema: The features, with their statistics.
        source: Kind and files of the input; None if Beam code made the input.
        rejects: Number and hash of the rows that could not be written:
            ``{"rows": …, "xxh64": …}``.
        sidecars: Hash of each other file of the dataset, by name.
        splits: The splits by name, in order.
        split_by: The property of a row that decides its split: ``bytes`` of the example, the
            columns of its ``group``, a ``column`` with the name of the split (or conditions on
            columns), or ``assigned`` by an earlier step; None if there is only one split.
        strata: Limits of the splits, if they were found by counting all rows; else None.
        rules: Number of the writing rules of the writer (see `RULES`).
        job_files: Names of ``job.json`` and of the files of rejects; empty for the usual ones.
        appended: What is known of each later job that appended rows, in order. `fingerprint`,
            `source`, `rejects`, `rules` and `job_files` are those of the first job, generation 1.

    Example:
        >>> [len(split.shards) for split in bt.Manifest.load("penguins/").splits.values()]
        [1, 1]
    """

    fingerprint: str = ""
    content: str
    order: str = "source"
    seed: int = 0
    compression: str = ""
    key: tuple[str, ...] | None = None
    group: tuple[str, ...] | None = None
    place: str = "origin"
    schema: Schema
    source: Mapping[str, Any] | None
    rejects: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"rows": 0})
    sidecars: Mapping[str, str] = dataclasses.field(default_factory=dict)
    splits: Mapping[str, Split]
    split_by: str | None = None
    strata: Strata | None = None
    rules: int = RULES
    job_files: tuple[str, ...] = ()
    appended: tuple[Generation, ...] = ()

    def __repr__(self) -> str:
        counts = [f"{name}={split.examples:,}" for name, split in self.splits.items()]
        columns = listed(self.schema.names)
        return f"<Manifest: {listed(counts)}; {format_size(self.bytes)}; {columns}>"

    def _repr_html_(self) -> str:
        return splits_html(self.splits) + self.schema._repr_html_()

    @property
    def examples(self) -> int:
        """Number of examples of all splits."""
        return sum(split.examples for split in self.splits.values())

    @property
    def bytes(self) -> int:
        """Size of all records before compression."""
        return sum(split.bytes for split in self.splits.values())

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards of all splits, in order."""
        return tuple(shard for split in self.splits.values() for shard in split.shards)

    @property
    def generations(self) -> tuple[Generation, ...]:
        """The jobs that wrote rows: that of `write`, and each that appended."""
        first = Generation(**{name: getattr(self, name) for name in _FIRST_FACTS})
        return first, *self.appended

    @property
    def indexes(self) -> dict[str, str]:
        """Hash of the index of each shard that has one, by the name of the index."""
        names = (index_name(shard.path) for shard in self.shards)
        return {name: self.sidecars[name] for name in names if name in self.sidecars}

    @property
    def origin(self) -> str:
        """The identity of the dataset, which appended rows do not change."""
        return f"{self.fingerprint}-{self.contents()[0]}"

    @property
    def rejected_rows(self) -> int:
        """Number of rows of all generations that could not be written."""
        return sum(one.rejects.get("rows", 0) for one in self.generations)

    def names(self, prefix: str) -> set[str]:
        """Return the names of all files of the dataset, which begin with `prefix`."""
        jobs = (name for one in self.generations for name in one.names(prefix))
        return {*(shard.path for shard in self.shards), *self.sidecars, *jobs}

    def contents(self) -> list[str]:
        """Return the content hash of the dataset as of each generation."""
        totals = [int(self.content, 16)]
        for one in reversed(self.appended):
            totals.append(totals[-1] - int(one.content, 16))
        return [sum_text([total]) for total in reversed(totals)]

    def with_appended(self, new: Manifest, files: Sequence[str]) -> Manifest:
        """Return the manifest of the dataset with the rows of `new` as one more generation.

        Args:
            new: The manifest of the appended rows, of the same layout and features.
            files: Names of the ``job.json`` and of the file of rejects of the new generation.
        """
        number = len(self.generations) + 1
        shards = {name: list(split.shards) for name, split in self.splits.items()}
        for name, split in new.splits.items():
            named = (dataclasses.replace(shard, generation=number) for shard in split.shards)
            shards.setdefault(name, []).extend(named)
        added = dataclasses.replace(new.generations[0], content=new.content, job_files=tuple(files))
        return dataclasses.replace(
            self,
            content=sum_text(int(of.content, 16) for of in (self, new)),
            schema=self.schema.with_more(new.schema) if new.examples else self.schema,
            sidecars={**self.sidecars, **new.indexes},
            splits={name: Split(tuple(of)) for name, of in shards.items()},
            appended=(*self.appended, added),
        )

    def compacted(self, new: Manifest, files: Sequence[str]) -> Manifest:
        """Return the manifest of the dataset with all its rows in the shards of `new`.

        Args:
            new: The manifest of the same rows, all in one generation.
            files: Names of the ``job.json`` and of the files of rejects of all generations.
        """
        listed_files = [
            of for one in self.generations for of in (one.source or {}).get("files", ())
        ]
        indexes = self.indexes
        kept = {name: of for name, of in self.sidecars.items() if name not in indexes}
        return dataclasses.replace(
            self,
            fingerprint="",
            source=None if self.source is None else {**self.source, "files": listed_files},
            rejects=new.rejects,
            sidecars={**kept, **new.indexes},
            splits={name: new.splits.get(name, Split(())) for name in self.splits},
            job_files=tuple(files),
            appended=(),
        )

    def at(self, generation: int) -> Manifest:
        """Return the manifest as of an earlier generation, without the statistics of its columns.

        Raises:
            UsageError: There is no such generation.
        """
        count = len(self.generations)
        if not 1 <= generation <= count:
            raise UsageError(f"generation {generation} does not exist: the last one is {count}")
        if generation == count:
            return self
        left = {
            name: Split(tuple(of for of in split.shards if of.generation <= generation))
            for name, split in self.splits.items()
        }
        return dataclasses.replace(
            self,
            content=self.contents()[generation - 1],
            schema=self.schema.without_observed(),
            splits=left,
            appended=self.appended[: generation - 1],
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, without its own hash."""
        return {
            "format": FORMAT,
            "requires": [],
            "content": self.content,
            "order": self.order,
            "seed": self.seed,
            "compression": self.compression,
            "key": None if self.key is None else list(self.key),
            "group": None if self.group is None else list(self.group),
            "place": self.place,
            "split_by": self.split_by,
            **({} if self.strata is None else {"strata": dataclasses.asdict(self.strata)}),
            "schema": self.schema.to_json(),
            "sidecars": dict(self.sidecars),
            "generations": [one.to_json() for one in self.generations],
            "splits": {
                name: {
                    "examples": split.examples,
                    "bytes": split.bytes,
                    "shards": [shard.to_json() for shard in split.shards],
                }
                for name, split in self.splits.items()
            },
        }

    def dumps(self) -> str:
        """Return the text of ``manifest.json``."""
        return sealed(self.to_json())

    @classmethod
    def loads(cls, text: str, *, where: str = MANIFEST_NAME) -> Manifest:
        """Parse the text of a manifest; `where` names it in errors.

        Raises:
            DataError: The text is not a manifest, or was changed after it was written.
        """
        return parse_sealed(
            text, _from_json, where=where, what="a manifest", format=FORMAT, command="write"
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """Read the manifest of a dataset.

        Args:
            path: The dataset's directory, or the manifest itself, such as ``out/p-manifest.json``.

        Raises:
            UsageError: There is no dataset.
            DataError: The manifest is damaged.
        """
        file = manifest_path(path)
        if (text := manifest_text(file)) is None:
            raise UsageError(_no_dataset(os.fspath(path), file))
        return cls.loads(text, where=file)


def near_datasets(path: str) -> list[str]:
    """Return the datasets and stages that a local path without a manifest may stand for.

    These are the ones inside a directory, or the one that another path may be a part of.
    """
    directory, patterns = path, (f"*-{MANIFEST_NAME}", f"*/{MANIFEST_NAME}")
    if not os.path.isdir(path):
        directory, patterns = os.path.dirname(path), (MANIFEST_NAME, f"*-{MANIFEST_NAME}")
    return [
        found.removesuffix(MANIFEST_NAME)[:-1] or "."
        for pattern in patterns
        for found in sorted(glob.glob(os.path.join(glob.escape(directory), pattern)))
    ]


def _no_dataset(path: str, file: str) -> str:
    """Return the message for a path without a manifest, with the datasets that it may stand for."""
    near = near_datasets(path)
    if len(near) == 1 and path.rstrip("/").endswith("rejects"):
        hint = f"{near[0]!r} has no rejects"
    elif len(near) == 1:
        hint = f"did you mean {near[0]!r}?"
    elif near:
        hint = f"the datasets there are {listed([os.path.basename(name) for name in near])}"
    elif os.path.isfile(path):
        hint = "it is a file: name the directory that 'beam-tfrecord write' made"
    elif glob.glob(os.path.join(glob.escape(path), "*.tfrec*")):
        hint = (
            f"it has shards but no {file!r}: if another program wrote them, make them a dataset by "
            "'beam-tfrecord write'; else restore the manifest from a copy"
        )
    else:
        hint = f"there is no {file!r}"
        if os.path.isdir(path) and any("." not in name for name in os.listdir(path)):
            hint += f": for TFRecord files without a suffix, pass {os.path.join(path, '*')!r}"
    return f"no dataset at {path!r}: {hint}"


def splits_html(splits: Mapping[str, Split]) -> str:
    """Return the sizes of splits as an HTML table."""
    rows = [
        (cell(name), f"{of.examples:,}", f"{len(of.shards):,}", format_size(of.bytes))
        for name, of in splits.items()
    ]
    return html_table(("split", "examples", "shards", "size"), rows, right=(1, 2, 3))


def manifest_text(file: str) -> str | None:
    """Return the text of a manifest; None if there is no such file."""
    try:
        return storage.read_small(file).decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not a manifest: {error}") from error
    except IsADirectoryError as error:
        raise DataError(f"{file} is a directory, not a manifest") from error


def manifest_path(path: str | os.PathLike[str]) -> str:
    """Return the path of a manifest, given the path of its directory, file prefix or itself."""
    text = storage.path_text(path)
    if storage.is_web(text) and not text.endswith(".json"):
        # Without the query of a URL, which is for one file.
        return f"{storage.public_path(text).rstrip('/')}/{MANIFEST_NAME}"
    if text.endswith(".json") and not storage.is_directory(text):
        return text
    if not storage.is_directory(text) and storage.exists(f"{text}-{MANIFEST_NAME}"):
        return f"{text}-{MANIFEST_NAME}"
    return os.path.join(text, MANIFEST_NAME)


def beside_manifest(path: str | os.PathLike[str], name: str) -> str:
    """Return the path of another file of a dataset, whose name begins with its file prefix."""
    return manifest_path(path).removesuffix(MANIFEST_NAME) + name


def prefix_of(manifest_file: str) -> str:
    """Return what the names of the files of a dataset begin with: its file prefix and a dash."""
    return os.path.basename(manifest_file).removesuffix(MANIFEST_NAME)


def generation_files(manifest_file: str, manifest: Manifest) -> list[list[str]]:
    """Return the paths of ``job.json`` and of the files of rejects of each generation."""
    prefix, directory = prefix_of(manifest_file), directory_of(manifest_file)
    return [
        [os.path.join(directory, name) for name in one.names(prefix)]
        for one in manifest.generations
    ]


def generation_jobs(manifest_file: str, manifest: Manifest) -> list[dict[str, Any]]:
    """Return the content of ``job.json`` of each generation; empty if it is missing or damaged."""
    return [read_job(job) for job, *_ in generation_files(manifest_file, manifest)]


def directory_of(manifest_file: str) -> str:
    """Return the absolute path of the directory that a manifest's paths are relative to."""
    return os.path.dirname(storage.absolute_path(manifest_file))


def sealed(value: Mapping[str, Any], *, lists: Collection[str] = ("generations",)) -> str:
    """Return the text of a manifest: a line for each key, shard and item of `lists`, and a hash."""
    fields = []
    for key, item in value.items():
        if key in lists:
            text = _lines("[", map(_compact, item), "  ]", 4)
        elif key == "splits":
            splits = (f"{_compact(name)}: {_split_text(of)}" for name, of in item.items())
            text = _lines("{", splits, "  }", 4)
        else:
            text = _compact(item)
        fields.append(f'  "{key}": {text}')
    return sealed_lines(fields)


def _split_text(split: Mapping[str, Any]) -> str:
    shards = _lines("[", (_compact(shard) for shard in split["shards"]), "    ]", 8)
    return f'{{"examples": {split["examples"]}, "bytes": {split["bytes"]}, "shards": {shards}}}'


def _lines(begin: str, items: Iterable[str], end: str, indent: int) -> str:
    """Return items in brackets, each in a line of its own."""
    lines = [f"\n{' ' * indent}{item}" for item in items]
    return f"{begin}{','.join(lines)}\n{end}" if lines else begin + end.lstrip()


class _SplitFile(msgspec.Struct):
    examples: int
    bytes: int
    shards: tuple[Shard, ...]


class _File(msgspec.Struct):
    """The JSON of a manifest; fields of later versions are ignored unless it requires them."""

    content: str
    order: Literal["shuffled", "source"]
    seed: Annotated[int, msgspec.Meta(ge=0)]
    compression: Literal["", "GZIP"]
    key: tuple[str, ...] | None
    group: tuple[str, ...] | None
    place: Literal["origin", "key", "bytes"]
    schema: dict[str, Any]
    sidecars: dict[str, str]
    splits: dict[str, _SplitFile]
    split_by: Literal["bytes", "group", "column", "assigned"] | None
    generations: Annotated[list[Generation], msgspec.Meta(min_length=1)]
    strata: Strata | None = None


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=False)


def _from_json(value: dict[str, Any]) -> Manifest:
    """Return the manifest with checked values, because its hash proves no authorship."""
    file = msgspec.convert(value, _File)
    first, *appended = file.generations
    facts = msgspec.structs.asdict(file) | {"appended": tuple(appended)}
    facts |= {name: getattr(first, name) for name in _FIRST_FACTS}
    del facts["generations"]
    # Later versions add statistics.
    facts["schema"] = Schema.from_json(file.schema, strict=False)
    facts["splits"] = {name: Split(split.shards) for name, split in file.splits.items()}
    made = Manifest(**facts)
    check_names([*(shard.path for shard in made.shards), *made.sidecars])
    if any(shard.generation > len(file.generations) for shard in made.shards):
        raise ValueError("a shard is of a generation that is not listed")
    if any(not one.content for one in made.appended):
        raise ValueError("a generation has no content hash")
    if made.seed >= 2**64:
        raise ValueError(f"seed cannot be {made.seed!r:.40}")
    for name, split in made.splits.items():
        if not is_split_name(name):
            raise ValueError(f"{name!r:.80} cannot be the name of a split")
        for total in ("examples", "bytes"):
            noted = getattr(file.splits[name], total)
            if noted != getattr(split, total):
                raise ValueError(
                    f"split {name!r} has {getattr(split, total):,} {total} in its shards, not "
                    f"{noted!r:.40}"
                )
    return made


def fitted_files(directory: str) -> Iterator[str]:
    """Yield the sorted files of a fitted function, as posix paths relative to `directory`."""
    for top in FITTED:
        for base, directories, files in os.walk(os.path.join(directory, top)):
            directories.sort()
            for name in sorted(files):
                yield os.path.relpath(os.path.join(base, name), directory).replace(os.sep, "/")
