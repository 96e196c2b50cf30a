"""Describes a dataset to other tools: to TensorFlow Datasets (`tfds`), and as Croissant.

``described.json`` lists the files. It is written first, so a job that changes the dataset finds and
removes each of them, whenever this process ended (`publish.transaction.remove_described`).
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from beam_tfrecord import native, storage
from beam_tfrecord.base.text import cell
from beam_tfrecord.cards import tfds
from beam_tfrecord.cards.card import ABOUT_FILE, json_bytes, kept_about
from beam_tfrecord.dataset.load import load
from beam_tfrecord.errors import DataError, TargetExists
from beam_tfrecord.features.arrow_types import bare_type, is_binary
from beam_tfrecord.features.feature import Feature, labels_text
from beam_tfrecord.features.tf_columns import VALUES, TFColumn, tf_columns
from beam_tfrecord.format.hashes import data_hash
from beam_tfrecord.format.job_file import STORED_HASHES
from beam_tfrecord.format.manifest import (
    Manifest,
    beside_manifest,
    directory_of,
    generation_jobs,
    manifest_path,
    prefix_of,
)
from beam_tfrecord.format.manifest_parts import Shard
from beam_tfrecord.images import ImageError
from beam_tfrecord.images.headers import describe as header_of
from beam_tfrecord.job_state.worker_errors import machine_faults
from beam_tfrecord.publish.transaction import DESCRIBED, remove_described

_READ_BYTES = 8 * 2**20
_DECODED = ("jpeg", "png", "bmp")
_INFO, _FORMAT = "dataset_info.json", "application/x-tfrecord"
_NUMBER = re.compile(r"^(u?)(int|float)(\d+)$")
_OF_CROISSANT = """
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
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    **{word: {"@id": f"cr:{word}", "@type": "@json"} for word in ("data", "examples")},
    **{word: {"@container": "@language"} for word in ("name", "description")},
    **{word: f"cr:{word}" for word in _OF_CROISSANT},
}


class Described(NamedTuple):
    """The result of `describe`.

    Attributes:
        files: Paths of the files that were written.
        left_out: Why TensorFlow Datasets cannot read a column, by the key of its examples; if it
            cannot read the dataset at all, why, under the name ``dataset_info.json``.
    """

    files: list[str]
    left_out: dict[str, str]

    def __str__(self) -> str:
        lines = [f"wrote {', '.join(map(os.path.basename, self.files))}"]
        for name, reason in self.left_out.items():
            lines.append(f"left out {cell(name)} for TensorFlow Datasets: {reason}")
        return "\n".join(lines)


def describe(
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    description: str | None = None,
    license: str | None = None,
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

    Returns:
        The files, and what TensorFlow Datasets cannot read.

    Raises:
        UsageError: There is no dataset, or it cannot be written to.
        TargetExists: A job writes or changes the dataset.
        DataError: A shard is damaged.

    Example:
        >>> len(bt.describe("trips/", title="Trips").files)
        3
    """
    file = storage.absolute_path(manifest_path(path))
    directory, entry = directory_of(file), storage.status(file)
    manifest = Manifest.load(path)
    with storage.lease(directory):
        remove_described(file)
    words = {"title": title, "description": description, "license": license}
    about = kept_about(beside_manifest(file, ABOUT_FILE), words)
    about = {"title": os.path.basename(directory) or "dataset", **about}
    with machine_faults(os.path.join(directory, "")):
        hashes = _hashes(file, manifest)
        images = {of.name for of in manifest.schema.features if _has_images(file, of)}
    texts, left_out = _tfds_texts(file, manifest, about, images)
    croissant = _croissant(manifest, about, hashes, images)
    texts = {"croissant.json": json_bytes(croissant), **texts}
    files = {prefix_of(file) + name: text for name, text in texts.items()}
    listed = {"files": {of: data_hash(text) for of, text in files.items()}, "left_out": left_out}
    with storage.lease(directory):
        if storage.status(file) != entry:
            raise TargetExists(f"a job has changed {directory!r} meanwhile: describe it again")
        remove_described(file)
        storage.put(beside_manifest(file, DESCRIBED), json_bytes(listed))
        for name, text in files.items():
            storage.put(os.path.join(directory, name), text)
    return Described([os.path.join(directory, name) for name in files], left_out)


def _hashes(file: str, manifest: Manifest) -> dict[str, tuple[str, int]]:
    """Return the SHA-256 and the size of each shard, whose bytes are those that were written."""
    expected: dict[str, str] = {}
    for job in generation_jobs(file, manifest):
        expected |= job.get(STORED_HASHES, {})
    if not manifest.compression:
        expected |= {shard.path: shard.xxh64 for shard in manifest.shards}

    def hashed(shard: Shard) -> tuple[str, int]:
        path = os.path.join(directory_of(file), shard.path)
        sha256, xxh64, nbytes = hashlib.sha256(), native.XXH64(0), 0
        with storage.open_once(path) as stored:
            while piece := stored.read(_READ_BYTES):
                sha256.update(piece)
                xxh64.update(piece)
                nbytes += len(piece)
        found = f"{xxh64.intdigest():016x}"
        if expected.get(shard.path, found) != found:
            raise DataError(f"{path!r} does not fit the manifest: run verify to find out why")
        return sha256.hexdigest(), nbytes

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(hashed, manifest.shards)
        return {shard.path: one for shard, one in zip(manifest.shards, found, strict=True)}


def _has_images(file: str, feature: Feature) -> bool:
    """Return whether a column has only images that TensorFlow decodes, and none is animated."""
    if not is_binary(bare_type(feature.type)):
        return False
    has_any = False
    for batch in load(file, columns=[feature.name]).batches():
        images = list(map(_is_image, batch[0].drop_null().to_pylist()))
        if not all(images):
            return False
        has_any |= any(images)
    return has_any


def _is_image(data: bytes) -> bool:
    with contextlib.suppress(ImageError):
        header = header_of(data)
        return header.format in _DECODED and header.refusal is None
    return False


def _tfds_texts(
    file: str, manifest: Manifest, about: Mapping[str, str], images: set[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the files of TensorFlow Datasets by name, and what they leave out."""
    features, left_out = tfds.features_of(manifest.schema, images)
    known = features["featuresDict"]["features"]
    if reason := tfds.why_not(manifest, file) or ("" if known else "it can read no column"):
        return {}, {_INFO: reason}
    labels = {tfds.labels_file(of): labels_text(of.labels) for of in manifest.schema.features}
    labels.pop("", None)
    # The file that TensorFlow Datasets looks for comes last.
    info = json_bytes(tfds.dataset_info(manifest, about))
    return {"features.json": json_bytes(features), **labels, _INFO: info}, left_out


def _croissant(
    manifest: Manifest, about: Mapping[str, str], hashes: Mapping[str, Any], images: set[str]
) -> dict[str, Any]:
    """Return the JSON-LD of a dataset; Croissant has no word for null, so descriptions say it."""
    encoding = [_FORMAT, "application/gzip"] if manifest.compression else _FORMAT
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
    patterns = sorted({re.sub(r"\d{5,}(?=-of-)", "*", path) for path in hashes})
    shards = {**_node("FileSet", "shards"), "encodingFormat": encoding, "includes": patterns}
    names = "|".join(map(re.escape, sorted(manifest.splits, key=len, reverse=True)))
    split = _field("split", "split", "sc:Text", {"fileProperty": "filename"})
    split["source"]["transform"] = {"regex": f"({names})-"}
    split["references"] = {"field": {"@id": "splits/name"}}
    columns = [
        _column(leaf, feature, is_image=feature.name in images)
        for feature in manifest.schema.features
        for leaf in tf_columns(feature)
        if leaf.role == VALUES
    ]
    types = {"splits/name": "sc:Text", "splits/examples": "cr:Int64"}
    counts = [
        {"splits/name": name, "splits/examples": of.examples}
        for name, of in manifest.splits.items()
    ]
    splits = {
        "dataType": "cr:Split",
        "key": {"@id": "splits/name"},
        "field": [{**_node("Field", id), "dataType": kind} for id, kind in types.items()],
        "data": counts,
    }
    rows = {"field": [*([split] if len(manifest.splits) > 1 else []), *columns]}
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": about["title"],
        **{word: about[word] for word in ("description", "license") if word in about},
        "version": tfds.VERSION,
        "distribution": [*files, shards],
        "recordSet": [
            {**_node("RecordSet", "splits"), **splits},
            {**_node("RecordSet", "rows"), **rows},
        ],
    }


def _node(kind: str, id: str, name: str | None = None) -> dict[str, Any]:
    return {"@type": f"cr:{kind}", "@id": id, "name": id if name is None else name}


def _field(id: str, name: str, kind: str, extract: Mapping[str, str]) -> dict[str, Any]:
    source = {"fileSet": {"@id": "shards"}, "extract": extract}
    return {**_node("Field", id, name), "dataType": kind, "source": source}


def _column(leaf: TFColumn, feature: Feature, *, is_image: bool) -> dict[str, Any]:
    """Return the field of the values at a key of the examples, as they are stored."""
    dtype = tfds.stored_dtype(leaf)
    kind = {"bool": "sc:Boolean"}.get(dtype, "sc:ImageObject" if is_image else "sc:Text")
    if number := _NUMBER.fullmatch(dtype):
        kind = f"cr:{number[1].upper()}{number[2].title()}{number[3]}"
    made = _field(f"rows/{quote(leaf.name, safe='')}", leaf.name, kind, {"column": leaf.name})
    words = [str(leaf.type), *(["may be missing"] if leaf.nullable else [])]
    words += [f"classes: {', '.join(feature.labels)}"] if feature.labels else []
    shape = tfds.shape_of(leaf, feature)
    if shape != ():
        made["isArray"] = True
    if shape:
        made["arrayShape"] = ",".join(str(-1 if size is None else size) for size in shape)
    return {**made, "description": "; ".join(words)}
