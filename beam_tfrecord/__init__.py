"""The public API: turns tables, images, arrays and databases into TFRecord datasets with Beam.

The first use of a public name imports its module, so importing the package itself is fast.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from beam_tfrecord._version import __version__

if TYPE_CHECKING:
    from beam_tfrecord.batch import Batch
    from beam_tfrecord.dataset.diff import diff
    from beam_tfrecord.dataset.load import load
    from beam_tfrecord.dataset.make_index import index
    from beam_tfrecord.dataset.repair import repair
    from beam_tfrecord.dataset.verify import verify
    from beam_tfrecord.errors import BeamTFRecordError
    from beam_tfrecord.features.feature import Feature
    from beam_tfrecord.features.schema import Schema
    from beam_tfrecord.jobs.api import extract, plan, schema, write
    from beam_tfrecord.manifest import Manifest
    from beam_tfrecord.preprocess.transform import Preprocess
    from beam_tfrecord.runners import pipeline
    from beam_tfrecord.transforms.assign_splits import AssignSplits
    from beam_tfrecord.transforms.extract import ExtractToParquet
    from beam_tfrecord.transforms.map_rows import MapBatches, MapRows
    from beam_tfrecord.transforms.read import (
        ReadFromArrow,
        ReadFromAvro,
        ReadFromCoco,
        ReadFromCsv,
        ReadFromDelta,
        ReadFromExcel,
        ReadFromIceberg,
        ReadFromImages,
        ReadFromJdbc,
        ReadFromJson,
        ReadFromNumpy,
        ReadFromOrc,
        ReadFromParquet,
        ReadFromSql,
        ReadFromTFRecord,
        ReadFromWebDataset,
    )
    from beam_tfrecord.transforms.read_all import (
        ReadAllFromArrow,
        ReadAllFromAvro,
        ReadAllFromCsv,
        ReadAllFromJson,
        ReadAllFromOrc,
        ReadAllFromParquet,
        ReadAllFromTFRecord,
        ReadAllFromWebDataset,
    )
    from beam_tfrecord.transforms.rows import BatchRows, EncodeExamples, ToExample, ToRows
    from beam_tfrecord.transforms.write import WriteToTFRecord

if sys.platform == "win32":
    raise ImportError("beam_tfrecord runs on Linux and macOS; on Windows, use it in WSL")
if not os.path.exists(f"{__path__[0]}/native/_index.abi3.so"):
    raise ImportError(
        f"{__path__[0]} is source code without its compiled kernel, and hides the installed "
        "package: run Python in another folder, or run: pip install -e ."
    )

# Beam warns of this whenever it is imported without its extra for Google Cloud.
logging.getLogger().addFilter(lambda record: not str(record.msg).startswith("apitools not found"))

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
    "ReadAllFromArrow",
    "ReadAllFromAvro",
    "ReadAllFromCsv",
    "ReadAllFromJson",
    "ReadAllFromOrc",
    "ReadAllFromParquet",
    "ReadAllFromTFRecord",
    "ReadAllFromWebDataset",
    "ReadFromArrow",
    "ReadFromAvro",
    "ReadFromCoco",
    "ReadFromCsv",
    "ReadFromDelta",
    "ReadFromExcel",
    "ReadFromIceberg",
    "ReadFromImages",
    "ReadFromJdbc",
    "ReadFromJson",
    "ReadFromNumpy",
    "ReadFromOrc",
    "ReadFromParquet",
    "ReadFromSql",
    "ReadFromTFRecord",
    "ReadFromWebDataset",
    "Schema",
    "ToExample",
    "ToRows",
    "WriteToTFRecord",
    "__version__",
    "diff",
    "extract",
    "index",
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
    "dataset.diff": ("diff",),
    "errors": ("BeamTFRecordError",),
    "jobs.api": ("extract", "plan", "schema", "write"),
    "manifest": ("Manifest",),
    "preprocess.transform": ("Preprocess",),
    "dataset.load": ("load",),
    "dataset.make_index": ("index",),
    "dataset.repair": ("repair",),
    "runners": ("pipeline",),
    "features.feature": ("Feature",),
    "features.schema": ("Schema",),
    "transforms.extract": ("ExtractToParquet",),
    "transforms.assign_splits": ("AssignSplits",),
    "transforms.map_rows": ("MapBatches", "MapRows"),
    "transforms.read": (
        "ReadFromArrow",
        "ReadFromAvro",
        "ReadFromCoco",
        "ReadFromCsv",
        "ReadFromDelta",
        "ReadFromExcel",
        "ReadFromIceberg",
        "ReadFromImages",
        "ReadFromJdbc",
        "ReadFromJson",
        "ReadFromNumpy",
        "ReadFromOrc",
        "ReadFromParquet",
        "ReadFromSql",
        "ReadFromTFRecord",
        "ReadFromWebDataset",
    ),
    "transforms.read_all": (
        "ReadAllFromArrow",
        "ReadAllFromAvro",
        "ReadAllFromCsv",
        "ReadAllFromJson",
        "ReadAllFromOrc",
        "ReadAllFromParquet",
        "ReadAllFromTFRecord",
        "ReadAllFromWebDataset",
    ),
    "transforms.rows": ("BatchRows", "EncodeExamples", "ToExample", "ToRows"),
    "dataset.verify": ("verify",),
    "transforms.write": ("WriteToTFRecord",),
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
