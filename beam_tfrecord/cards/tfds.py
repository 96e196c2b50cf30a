"""Describes a dataset as TensorFlow Datasets does: ``dataset_info.json`` and ``features.json``.

TensorFlow Datasets (TFDS) parses each key of an example by one of its features. A column that may
be null is a TFDS ``Sequence`` of no value or one, since TFDS has no null. The texts are JSON of the
protos ``DatasetInfo`` and ``Feature`` in ``tensorflow_datasets/core/proto``; TFDS is not imported.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.features.arrow_types import bare_type, is_temporal, is_text, item_and_shape
from beam_tfrecord.features.feature import Feature
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.features.tensors import OpenShape, TensorType
from beam_tfrecord.features.tf_columns import BYTES, FLOAT, VALUES, TFColumn, tf_columns
from beam_tfrecord.format.manifest import Manifest, prefix_of
from beam_tfrecord.format.manifest_parts import Shard
from beam_tfrecord.storage import is_plain_name

# TFDS needs a version, and shows it; a dataset of ours has none.
VERSION = "1.0.0"
_CLASSES = "tensorflow_datasets.core.features"
# What `tf.io.decode_raw` decodes; TFDS decodes uint64 as int64.
_RAW = """
bool complex64 complex128 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint64
""".split()  # noqa: SIM905
_SPLIT = re.compile(r"(?!all$)[\w-]+")


def why_not(manifest: Manifest, manifest_file: str) -> str:
    """Return why TFDS cannot read a dataset; empty if it can."""
    templates = [_template(split.shards) for split in manifest.splits.values()]
    reasons = {
        "it reads no compressed files": manifest.compression,
        "it reads one generation: run compact first": manifest.appended,
        "it reads no dataset with a file prefix": prefix_of(manifest_file),
        "it reads no split of such a name": not all(map(_SPLIT.fullmatch, manifest.splits)),
        "it reads no files of such names": None in templates,
    }
    return next((reason for reason, is_so in reasons.items() if is_so), "")


def _template(shards: Sequence[Shard]) -> str | None:
    """Return the template of TFDS for the names of shards; None if it has none for them."""
    digits = max(5, len(str(len(shards))))
    places = [f"{number:0{digits}}-of-{len(shards):0{digits}}" for number in range(len(shards))]
    template = shards[0].path.replace(places[0], "{SHARD_X_OF_Y}") if shards else ""
    names = [template.replace("{SHARD_X_OF_Y}", place) for place in places]
    return template if names == [shard.path for shard in shards] else None


def dataset_info(manifest: Manifest, about: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON of ``dataset_info.json``."""
    name = re.sub(r"\W+", "_", about["title"], flags=re.ASCII).strip("_").lower()
    return {
        "name": name if name[:1].isalpha() else f"dataset_{name}",
        "version": VERSION,
        "description": about.get("description", ""),
        "redistributionInfo": {"license": about.get("license", "")},
        "fileFormat": "tfrecord",
        # Else TFDS reads 16 shards at a time.
        "disableShuffling": manifest.order == "source",
        "splits": [
            {
                "name": name,
                "filepathTemplate": _template(split.shards),
                "shardLengths": [str(shard.examples) for shard in split.shards],
                "numBytes": str(split.bytes),
            }
            for name, split in manifest.splits.items()
        ],
    }


def features_of(schema: Schema, images: Collection[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the JSON of ``features.json``, and why it leaves out the keys of some columns.

    The keys are those of examples; `images` are columns of images.
    """
    made: dict[str, Any] = {}
    for feature in schema.features:
        leaves = (leaf for leaf in tf_columns(feature) if leaf.role == VALUES)
        made |= {leaf.name: _feature_of(leaf, feature, feature.name in images) for leaf in leaves}
    left_out = {name: of for name, of in made.items() if isinstance(of, str)}
    known = {name: of for name, of in made.items() if name not in left_out}
    return _made("features_dict.FeaturesDict", featuresDict={"features": known}), left_out


def labels_file(feature: Feature) -> str:
    """Return the name of the file from which TFDS reads class names; empty if it reads none.

    It strips each line, and refuses class names that occur twice.
    """
    names, file = feature.labels, f"{feature.name.replace('/', '.')}.labels.txt"
    is_class = pa.types.is_integer(bare_type(feature.type)) and feature.store == "auto"
    stripped = [line.strip() for line in "\n".join(names).splitlines()]
    is_same = stripped == [*names] and all(names) and len({*names}) == len(names)
    return file if names and is_class and is_same and is_plain_name(file) else ""


def _feature_of(leaf: TFColumn, feature: Feature, has_images: bool) -> dict[str, Any] | str:
    shape, dtype = shape_of(leaf, feature), stored_dtype(leaf)
    is_tensor = isinstance(bare_type(feature.type), TensorType)
    if shape is None or shape.count(None) > 1 or (None in shape[1:] and not is_tensor):
        return "arrays or lists of which several lengths vary"
    if 0 in shape:
        return "arrays without values"
    is_list = shape[:1] == (None,)
    inner = shape[1:] if is_list else shape
    if isinstance(leaf.type, TensorType):
        made = _tensor(shape, dtype, "bytes")
        return f"arrays of {dtype}" if dtype not in _RAW else _sequence(made, leaf.nullable)
    if inner and leaf.store == "bytes":
        return "lists of float64 stored as bytes"
    made = _tensor(inner, dtype) if inner else _scalar(leaf, feature, has_images)
    if is_temporal(leaf.type) or pa.types.is_decimal(leaf.type):
        made["description"] = str(leaf.type)
    return _sequence(made, is_list or (leaf.nullable and None not in inner))


def shape_of(leaf: TFColumn, feature: Feature) -> OpenShape:
    """Return the shape of the values of a key in a row; None if the rank varies."""
    arrow = bare_type(feature.type)
    if isinstance(arrow, TensorType):
        return arrow.shape
    if leaf.shape is not None:
        return leaf.shape
    shape = item_and_shape(arrow)[1]
    # Lists of structs are lists of the values of each field.
    return shape if len(shape) == leaf.depth else (None,) * leaf.depth


def _scalar(leaf: TFColumn, feature: Feature, has_images: bool) -> dict[str, Any]:
    if leaf.store == "bytes":
        return _tensor((), stored_dtype(leaf), "bytes")
    if leaf.kind == BYTES and (is_text(leaf.type) or leaf.store == "text"):
        return _made("text_feature.Text", text={})
    if has_images:
        content = {"dtype": "uint8", "shape": _dims((None, None, 3))}
        return _made("image_feature.Image", image=content)
    if labels_file(feature):
        count = {"numClasses": str(len(feature.labels))}
        return _made("class_label_feature.ClassLabel", classLabel=count)
    return _tensor((), stored_dtype(leaf))


def stored_dtype(leaf: TFColumn) -> str:
    """Return NumPy's name of the type of the stored values, or ``string`` for text and bytes."""
    if isinstance(leaf.type, TensorType):
        return leaf.type.dtype.name
    if leaf.store == "bytes":
        return "float64"
    if leaf.kind == BYTES:
        return "string"
    if leaf.kind == FLOAT:
        return "float16" if pa.types.is_float16(leaf.type) else "float32"
    is_plain = pa.types.is_integer(leaf.type) or pa.types.is_boolean(leaf.type)
    return str(leaf.type) if is_plain else "int64"


def _tensor(shape: Sequence[int | None], dtype: str, encoding: str = "none") -> dict[str, Any]:
    content = {"dtype": dtype, "encoding": encoding, "shape": _dims(shape)}
    return _made("tensor_feature.Tensor", tensor=content)


def _sequence(feature: dict[str, Any], is_one: bool) -> dict[str, Any]:
    content = {"feature": feature, "length": "-1"}
    return _made("sequence_feature.Sequence", sequence=content) if is_one else feature


def _dims(shape: Sequence[int | None]) -> dict[str, Any]:
    return {"dimensions": [str(-1 if size is None else size) for size in shape]}


def _made(name: str, **content: Any) -> dict[str, Any]:
    return {"pythonClassName": f"{_CLASSES}.{name}", **content}
