"""Describes a dataset to other tools: to TensorFlow Datasets (`tfds`), and as Croissant.

``described.json`` lists the files. It is written first, so a job that changes the dataset finds and
removes each of them, whenever this process ended (`publish.transaction.remove_described`).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from beam_tfrecord import native, storage
from beam_tfrecord.base.progress import adder, display_of
from beam_tfrecord.base.text import cell
from beam_tfrecord.cards import tfds
from beam_tfrecord.cards.card import ABOUT_FILE, kept_about
from beam_tfrecord.dataset.load import load
from beam_tfrecord.errors import DataError, TargetExists
from beam_tfrecord.features.arrow_types import bare_type, is_binary
from beam_tfrecord.features.feature import Feature, labels_text
from beam_tfrecord.features.tf_columns import VALUES, TFColumn, tf_columns
from beam_tfrecord.format.hashes import data_hash
from beam_tfrecord.format.job_file import STORED_HASHES, read_job
from beam_tfrecord.format.manifest import (
    Manifest,
    beside_manifest,
    directory_of,
    generation_files,
    manifest_path,
    prefix_of,
)
from beam_tfrecord.format.manifest_parts import Shard
from beam_tfrecord.images import ImageError
from beam_tfrecord.images.headers import describe as header_of
from beam_tfrecord.job_state.worker_errors import machine_faults
from beam_tfrecord.publish.transaction import DESCRIBED, remove_described

if TYPE_CHECKING:
    from beam_tfrecord.base.progress import Progress

_READ_BYTES = 8 * 2**20
_DECODED = ("jpeg", "png", "bmp")
_FORMAT, _GZIP = "application/x-tfrecord", "application/gzip"
_NUMBER = re.compile(r"^(u?)(int|float)(\d+)$")
_WORDS = """
arrayShape citeAs column containedIn equivalentProperty extract field fileProperty fileObject
fileSet format includes isArray isLiveDataset jsonPath key md5 parentField path recordSet references
regex repeated replace samplingRate separator source subField transform
""".split()  # noqa: SIM905
_CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "name": {"@container": "@language"},
    "description": {"@container": "@language"},
    **{word: f"cr:{word}" for word in _WORDS},
}


@dataclasses.dataclass(frozen=True)
class Described:
    """The result of `describe`.

    Attributes:
        files: Paths of the files that were written.
        left_out: Why TensorFlow Datasets cannot read a column, by the key of its examples; if it
            cannot read the dataset at all, why, under the name ``dataset_info.json``.
    """

    files: tuple[str, ...]
    left_out: Mapping[str, str]

    def __str__(self) -> str:
        names = ", ".join(map(os.path.basename, self.files))
        left = (
            f"left out {cell(name)} for TensorFlow Datasets: {reason}"
            for name, reason in self.left_out.items()
        )
        return "\n".join([f"wrote {names}", *left])


def describe(
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    description: str | None = None,
    license: str | None = None,
    progress: Progress | bool | None = None,
) -> Described:
    """Write the files by which other tools read a dataset: TensorFlow Datasets, Croissant.

    ``dataset_info.json`` and ``features.json`` are for `tfds.builder_from_directory`. Croissant's
    ``croissant.json`` has the SHA-256 of each shard, so all shards are read. The files lie beside
    the manifest, and are removed when a job changes the dataset. Title, description and license are
    kept in ``about.json`` of the dataset, for a card, too.

    Args:
        path: Directory of the dataset.
        title: Title of the dataset; None means the one in ``about.json``, or the name of the
            directory.
        description: What the dataset holds, in a few sentences.
        license: Name or URL of its license.
        progress: True shows a bar on stderr.

    Returns:
        The files, and what TensorFlow Datasets cannot read.

    Raises:
        UsageError: There is no dataset, or it cannot be written to.
        TargetExists: A job writes or changes the dataset.
        DataError: A shard is damaged.
    """
    file = storage.absolute_path(manifest_path(path))
    directory, entry = directory_of(file), storage.status(file)
    manifest = Manifest.load(path)
    with storage.lease(directory):
        remove_described(file)
    words = {"title": title, "description": description, "license": license}
    about = kept_about(beside_manifest(file, ABOUT_FILE), words)
    about = {"title": os.path.basename(directory) or "dataset", **about}
    with display_of(progress) as display, machine_faults(os.path.join(directory, "")):
        advance = adder(display, "reading", manifest.bytes)
        hashes = _hashes(file, manifest, advance)
        images = _image_columns(file, manifest)
    texts, left_out = _tfds_texts(file, manifest, about, images)
    croissant = _croissant(manifest, prefix_of(file), about, hashes, images)
    texts = {"croissant.json": _json(croissant), **texts}
    names = {prefix_of(file) + name: text for name, text in texts.items()}
    listed = {"files": {n: data_hash(text) for n, text in names.items()}, "left_out": left_out}
    with storage.lease(directory):
        if storage.status(file) != entry:
            raise TargetExists(f"a job has changed {directory!r} meanwhile: describe it again")
        remove_described(file)
        storage.put(beside_manifest(file, DESCRIBED), _json(listed))
        for name, text in names.items():
            storage.put(os.path.join(directory, name), text)
    return Described(tuple(os.path.join(directory, name) for name in names), left_out)


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()


def _hashes(
    file: str, manifest: Manifest, advance: Callable[[int], None]
) -> dict[str, tuple[str, int]]:
    """Return the SHA-256 and the size of each shard, whose bytes are those that were written."""
    expected = {} if manifest.compression else {of.path: of.xxh64 for of in manifest.shards}
    for job_file, *_ in generation_files(file, manifest):
        expected = {**read_job(job_file).get(STORED_HASHES, {}), **expected}

    def hashed(shard: Shard) -> tuple[str, int]:
        path = os.path.join(directory_of(file), shard.path)
        sha256, xxh64, nbytes = hashlib.sha256(), native.XXH64(0), 0
        with storage.open_once(path) as stored:
            while piece := stored.read(_READ_BYTES):
                sha256.update(piece)
                xxh64.update(piece)
                nbytes += len(piece)
        if expected.get(shard.path, found := f"{xxh64.intdigest():016x}") != found:
            raise DataError(f"{path!r} does not fit the manifest: run verify to find out why")
        advance(shard.bytes)
        return sha256.hexdigest(), nbytes

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(hashed, manifest.shards))
    return {shard.path: one for shard, one in zip(manifest.shards, found, strict=True)}


def _image_columns(file: str, manifest: Manifest) -> set[str]:
    """Return the columns of which every value is an image that TensorFlow decodes, not animated."""
    binary = {of.name for of in manifest.schema.features if is_binary(bare_type(of.type))}
    left, seen = set(binary), set[str]()
    for batch in load(file, columns=sorted(binary)).batches() if binary else ():
        for name in sorted(left):
            values = batch[name].drop_null().to_pylist()
            if not all(map(_is_image, values)):
                left.discard(name)
            elif values:
                seen.add(name)
        if not left:
            break
    return left & seen


def _is_image(data: bytes) -> bool:
    with contextlib.suppress(ImageError):
        header = header_of(data)
        return header.format in _DECODED and header.refusal is None
    return False


def _tfds_texts(
    file: str, manifest: Manifest, about: Mapping[str, str], images: set[str]
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Return the files of TensorFlow Datasets by name, and what they leave out."""
    if reason := tfds.why_not(manifest, file):
        return {}, {"dataset_info.json": reason}
    made: dict[str, Any] = {}
    for feature in manifest.schema.features:
        made |= tfds.tfds_features(feature, has_images=feature.name in images)
    left_out = {name: of for name, of in made.items() if isinstance(of, str)}
    known = {name: of for name, of in made.items() if name not in left_out}
    if not known:
        return {}, {**left_out, "dataset_info.json": "it can read no column"}
    texts = {"features.json": _json(tfds.features_json(known))}
    for feature in manifest.schema.features:
        if name := tfds.labels_file(feature):
            texts[name] = labels_text(feature.labels)
    # The file that TensorFlow Datasets looks for comes last.
    info = tfds.dataset_info(manifest, about["title"], about)
    return {**texts, "dataset_info.json": _json(info)}, left_out


def _croissant(
    manifest: Manifest,
    prefix: str,
    about: Mapping[str, str],
    hashes: Mapping[str, tuple[str, int]],
    images: set[str],
) -> dict[str, Any]:
    """Return the JSON-LD of a dataset; Croissant has no word for null, so descriptions say it."""
    encoding = [_FORMAT, _GZIP] if manifest.compression else _FORMAT
    files = [
        {
            **_node("FileObject", quote(path), path),
            "contentUrl": quote(path),
            "contentSize": f"{nbytes} B",
            "encodingFormat": encoding,
            "sha256": sha256,
        }
        for path, (sha256, nbytes) in hashes.items()
    ]
    patterns = {re.sub(r"\d{5,}(?=-of-)", "*", path): None for path in hashes}
    shards = {**_node("FileSet", "shards"), "encodingFormat": encoding, "includes": [*patterns]}
    fields = [] if (split := _split_field(manifest, prefix)) is None else [split]
    classes = []
    for feature in manifest.schema.features:
        enumeration = f"classes/{quote(feature.name, safe='')}"
        if feature.labels and tfds.is_class(feature):
            rows = [*enumerate(feature.labels)]
            classes.append(_table(enumeration, "sc:Enumeration", ("number", "label"), rows))
        for leaf in tf_columns(feature):
            if leaf.role == VALUES:
                fields.append(_field(leaf, feature, is_image=feature.name in images))
        if classes and classes[-1]["@id"] == enumeration:
            fields[-1]["references"] = {"field": {"@id": f"{enumeration}/number"}}
    counts = [(name, split.examples) for name, split in manifest.splits.items()]
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": about["title"],
        **{word: about[word] for word in ("description", "license") if word in about},
        "version": tfds.VERSION,
        "distribution": [*files, shards],
        "recordSet": [
            _table("splits", "cr:Split", ("name", "examples"), counts),
            *classes,
            {**_node("RecordSet", "rows"), "field": fields},
        ],
    }


def _node(kind: str, id: str, name: str | None = None) -> dict[str, Any]:
    return {"@type": f"cr:{kind}", "@id": id, "name": id if name is None else name}


def _table(id: str, kind: str, columns: tuple[str, str], rows: list[Any]) -> dict[str, Any]:
    """Return a record set of two columns, text and numbers, that has its rows in it."""
    names = [f"{id}/{column}" for column in columns]
    types = ["sc:Text" if isinstance(value, str) else "cr:Int64" for value in rows[0]]
    described = zip(names, columns, types, strict=True)
    return {
        **_node("RecordSet", id),
        "dataType": kind,
        "key": {"@id": names[0]},
        "field": [{**_node("Field", name, of), "dataType": type} for name, of, type in described],
        "data": [dict(zip(names, row, strict=True)) for row in rows],
    }


def _split_field(manifest: Manifest, prefix: str) -> dict[str, Any] | None:
    """Return the field that tells the split of a row by the name of its shard, if names do so."""
    names = "|".join(map(re.escape, sorted(manifest.splits, key=len, reverse=True)))
    pattern = f"{re.escape(prefix)}({names})-"
    for name, split in manifest.splits.items():
        matches = (re.match(pattern, shard.path) for shard in split.shards)
        if not all(match and match[1] == name for match in matches):
            return None
    source = _source({"fileProperty": "filename"}) | {"transform": {"regex": pattern}}
    references = {"field": {"@id": "splits/name"}}
    made = {**_node("Field", "split"), "dataType": "sc:Text"}
    return {**made, "source": source, "references": references}


def _source(extract: Mapping[str, str]) -> dict[str, Any]:
    return {"fileSet": {"@id": "shards"}, "extract": extract}


def _field(leaf: TFColumn, feature: Feature, *, is_image: bool) -> dict[str, Any]:
    """Return the field of the values at a key of the examples, as they are stored."""
    dtype = tfds.stored_dtype(leaf)
    number = _NUMBER.sub(lambda found: f"cr:{found[1].upper()}{found[2].title()}{found[3]}", dtype)
    kind = number if number != dtype else "sc:Boolean" if dtype == "bool" else "sc:Text"
    shape = tfds.shape_of(leaf, feature)
    sizes = "" if shape is None else ",".join(str(size or -1) for size in shape)
    return {
        **_node("Field", f"rows/{quote(leaf.name, safe='')}", leaf.name),
        "description": f"{leaf.type}{', may be missing' if leaf.nullable else ''}",
        "dataType": "sc:ImageObject" if is_image else kind,
        **({"isArray": True} if shape != () else {}),
        **({"arrayShape": sizes} if sizes else {}),
        "source": _source({"column": leaf.name}),
    }
