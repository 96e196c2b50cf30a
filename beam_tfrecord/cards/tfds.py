"""Describes a dataset as TensorFlow Datasets does: ``dataset_info.json`` and ``features.json``.

TensorFlow Datasets (TFDS) parses each key of an example by one of its features. A column that may
be null is a TFDS ``Sequence`` of no value or one, since TFDS has no null. The texts are JSON of the
protos ``DatasetInfo`` and ``Feature`` in ``tensorflow_datasets/core/proto``; TFDS is not imported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_tfrecord.features.arrow_types import bare_type, is_temporal, is_text, item_and_shape
from beam_tfrecord.features.feature import Feature
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
_NUMBERS = re.compile(r"\d{5,}-of-\d{5,}")
_SUFFIX = ".tfrecord"


def why_not(manifest: Manifest, manifest_file: str) -> str:
    """Return why TFDS cannot read a dataset; empty if it can."""
    if manifest.compression:
        return "it reads no compressed files"
    if manifest.appended:
        return "it reads one generation: run compact first"
    if prefix_of(manifest_file):
        return "it reads no datasets with a file prefix"
    for name, split in manifest.splits.items():
        if not _SPLIT.fullmatch(name):
            return f"it reads no split named {name!r}"
        if _template(name, split.shards) is None:
            return f"it reads no files named as {split.shards[0].path!r}"
    return ""


def _template(split: str, shards: Sequence[Shard]) -> str | None:
    """Return the template of TFDS for the names of shards; None if it has none for them."""
    count = len(shards)
    digits = max(5, len(str(count)))
    names = [f"{split}-{n:0{digits}}-of-{count:0{digits}}{_SUFFIX}" for n in range(count)]
    is_same = names == [shard.path for shard in shards]
    return "{SPLIT}-{SHARD_X_OF_Y}.{FILEFORMAT}" if is_same else None


def dataset_info(manifest: Manifest, title: str, about: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON of ``dataset_info.json``."""
    name = re.sub(r"\W+", "_", title, flags=re.ASCII).strip("_").lower()
    info: dict[str, Any] = {
        "name": name if name[:1].isalpha() else f"dataset_{name}",
        "version": VERSION,
        "fileFormat": _SUFFIX[1:],
        # Else TFDS reads 16 shards at a time.
        "disableShuffling": manifest.order == "source",
        "splits": [
            {
                "name": name,
                "filepathTemplate": _template(name, split.shards),
                "shardLengths": [str(shard.examples) for shard in split.shards],
                "numBytes": str(split.bytes),
            }
            for name, split in manifest.splits.items()
        ],
    }
    if "description" in about:
        info["description"] = about["description"]
    if "license" in about:
        info["redistributionInfo"] = {"license": about["license"]}
    return info


def features_json(features: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of ``features.json``."""
    return _made("features_dict.FeaturesDict", featuresDict={"features": dict(features)})


def tfds_features(feature: Feature, *, has_images: bool) -> dict[str, dict[str, Any] | str]:
    """Return the TFDS feature of each key that holds a column, or why there is none for it."""
    leaves = [leaf for leaf in tf_columns(feature) if leaf.role == VALUES]
    return {leaf.name: _feature_of(leaf, feature, has_images) for leaf in leaves}


def labels_file(feature: Feature) -> str:
    """Return the name of the file from which TFDS reads class names; empty if it reads none.

    It strips each line, and refuses class names that occur twice.
    """
    names = feature.labels
    is_same = all(name == name.strip() and not {*"\r\n"} & {*name} for name in names)
    file = f"{feature.name.replace('/', '.')}.labels.txt"
    is_file = all(names) and len({*names}) == len(names) and is_same and is_plain_name(file)
    return file if names and is_class(feature) and is_file else ""


def is_class(feature: Feature) -> bool:
    """Return whether a column has the numbers of classes, and not their names."""
    return pa.types.is_integer(bare_type(feature.type)) and feature.store == "auto"


def _feature_of(leaf: TFColumn, feature: Feature, has_images: bool) -> dict[str, Any] | str:
    shape, tensor = shape_of(leaf, feature), bare_type(feature.type)
    if shape is None:
        return "arrays of different ranks"
    if 0 in shape:
        return "arrays without values"
    if shape.count(None) > 1:
        return "arrays or lists of which several lengths vary"
    if isinstance(leaf.type, TensorType):
        if (dtype := stored_dtype(leaf)) not in _RAW:
            return f"arrays of {dtype}"
        made = _tensor(shape, dtype, "bytes")
        return _sequence(made) if leaf.nullable else made
    if None in shape[1:] and not isinstance(tensor, TensorType):
        return "arrays or lists of which several lengths vary"
    is_list = shape[:1] == (None,)
    inner = shape[1:] if is_list else shape
    if inner and leaf.store == "bytes":
        return "arrays of float64 stored as bytes"
    made = _tensor(inner, stored_dtype(leaf)) if inner else _scalar(leaf, feature, has_images)
    if is_temporal(leaf.type) or pa.types.is_decimal(leaf.type):
        made["description"] = str(leaf.type)
    return _sequence(made) if is_list or (leaf.nullable and None not in inner) else made


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
        return _made(
            "image_feature.Image", image={"dtype": "uint8", "shape": _dims((None, None, 3))}
        )
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


def _sequence(feature: Mapping[str, Any]) -> dict[str, Any]:
    return _made("sequence_feature.Sequence", sequence={"feature": feature, "length": "-1"})


def _dims(shape: Sequence[int | None]) -> dict[str, Any]:
    return {"dimensions": [str(-1 if size is None else size) for size in shape]}


def _made(name: str, **content: Any) -> dict[str, Any]:
    return {"pythonClassName": f"{_CLASSES}.{name}", **content}
