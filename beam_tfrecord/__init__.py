"""Writes tables as sharded, shuffled, split TFRecord datasets with Apache Beam.

A public name is imported at its first use, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from beam_tfrecord._version import __version__

if TYPE_CHECKING:
    from beam_tfrecord.batch import Batch
    from beam_tfrecord.dataset.diff import diff
    from beam_tfrecord.dataset.load import load
    from beam_tfrecord.dataset.repair import repair
    from beam_tfrecord.dataset.verify import verify
    from beam_tfrecord.errors import BeamTFRecordError
    from beam_tfrecord.features.schema import Feature, Schema
    from beam_tfrecord.jobs.job import plan, schema, write
    from beam_tfrecord.manifest import Manifest
    from beam_tfrecord.preprocess.transform import Preprocess
    from beam_tfrecord.runners import pipeline
    from beam_tfrecord.staging.job import extract
    from beam_tfrecord.staging.transform import ExtractToParquet
    from beam_tfrecord.transforms.databases import ReadFromJdbc
    from beam_tfrecord.transforms.transforms import (
        AssignSplits,
        BatchRows,
        EncodeExamples,
        MapBatches,
        MapRows,
        ReadFromCsv,
        ReadFromImages,
        ReadFromNumpy,
        ReadFromParquet,
        ReadFromSql,
        ToExample,
        ToRows,
    )
    from beam_tfrecord.transforms.writing import WriteToTFRecord

__all__ = [
    "AssignSplits",
    "Batch",
    "BatchRows",
    "BeamTFRecordError",
    "EncodeExamples",
    "ExtractToParquet",
    "Feature",
    "Manifest",
    "MapBatches",
    "MapRows",
    "Preprocess",
    "ReadFromCsv",
    "ReadFromImages",
    "ReadFromJdbc",
    "ReadFromNumpy",
    "ReadFromParquet",
    "ReadFromSql",
    "Schema",
    "ToExample",
    "ToRows",
    "WriteToTFRecord",
    "__version__",
    "diff",
    "extract",
    "load",
    "pipeline",
    "plan",
    "repair",
    "schema",
    "verify",
    "write",
]

_MODULE_OF = {
    "batch": ("Batch",),
    "transforms.databases": ("ReadFromJdbc",),
    "dataset.diff": ("diff",),
    "errors": ("BeamTFRecordError",),
    "jobs.job": ("plan", "schema", "write"),
    "manifest": ("Manifest",),
    "preprocess.transform": ("Preprocess",),
    "dataset.load": ("load",),
    "dataset.repair": ("repair",),
    "runners": ("pipeline",),
    "features.schema": ("Feature", "Schema"),
    "staging.job": ("extract",),
    "staging.transform": ("ExtractToParquet",),
    "transforms.transforms": (
        *("AssignSplits", "BatchRows", "EncodeExamples", "MapBatches", "MapRows"),
        *("ReadFromCsv", "ReadFromImages", "ReadFromNumpy", "ReadFromParquet", "ReadFromSql"),
        *("ToExample", "ToRows"),
    ),
    "dataset.verify": ("verify",),
    "transforms.writing": ("WriteToTFRecord",),
}
_HOME = {name: module for module, names in _MODULE_OF.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
