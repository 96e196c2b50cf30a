"""beam_tfrecord: tables into sharded, shuffled, split TFRecord datasets through Apache Beam.

Every name is imported when it is first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

from beam_tfrecord._version import __version__

if TYPE_CHECKING:
    from beam_tfrecord.batch import Batch
    from beam_tfrecord.databases import ReadFromJdbc
    from beam_tfrecord.diff import diff
    from beam_tfrecord.errors import BeamTFRecordError
    from beam_tfrecord.job import plan, schema, write
    from beam_tfrecord.manifest import Manifest
    from beam_tfrecord.preprocess.stage import Preprocess
    from beam_tfrecord.reader import load
    from beam_tfrecord.repair import repair
    from beam_tfrecord.runners import pipeline
    from beam_tfrecord.schema import Feature, Schema
    from beam_tfrecord.staging.job import extract
    from beam_tfrecord.staging.transform import ExtractToParquet
    from beam_tfrecord.transforms import (
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
    from beam_tfrecord.verify import verify
    from beam_tfrecord.writing import WriteToTFRecord

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
    "databases": ("ReadFromJdbc",),
    "diff": ("diff",),
    "errors": ("BeamTFRecordError",),
    "job": ("plan", "schema", "write"),
    "manifest": ("Manifest",),
    "preprocess.stage": ("Preprocess",),
    "reader": ("load",),
    "repair": ("repair",),
    "runners": ("pipeline",),
    "schema": ("Feature", "Schema"),
    "staging.job": ("extract",),
    "staging.transform": ("ExtractToParquet",),
    "transforms": (
        *("AssignSplits", "BatchRows", "EncodeExamples", "MapBatches", "MapRows"),
        *("ReadFromCsv", "ReadFromImages", "ReadFromNumpy", "ReadFromParquet", "ReadFromSql"),
        *("ToExample", "ToRows"),
    ),
    "verify": ("verify",),
    "writing": ("WriteToTFRecord",),
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


class _Package(types.ModuleType):
    """The package, where a function wins over the module of the same name.

    Importing ``beam_tfrecord.schema`` would set the attribute ``schema`` to that module, and
    whether ``beam_tfrecord.schema(…)`` works would depend on what was imported before.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name in _HOME and isinstance(value, types.ModuleType):
            return
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
