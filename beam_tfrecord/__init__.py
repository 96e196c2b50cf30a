"""The public API: turns tables, images, arrays and databases into TFRecord datasets with Beam.

The first use of a public name imports its module, so importing the package itself is fast.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

from beam_tfrecord._version import __version__ as __version__

if TYPE_CHECKING:
    from beam_tfrecord.check.diff import diff as diff
    from beam_tfrecord.check.repair import repair as repair
    from beam_tfrecord.check.verify import verify as verify
    from beam_tfrecord.dataset.load import load as load
    from beam_tfrecord.dataset.make_index import index as index
    from beam_tfrecord.errors import BeamTFRecordError as BeamTFRecordError
    from beam_tfrecord.features.feature import Feature as Feature
    from beam_tfrecord.features.schema import Schema as Schema
    from beam_tfrecord.format.manifest import Manifest as Manifest
    from beam_tfrecord.jobs.api import extract as extract
    from beam_tfrecord.jobs.api import plan as plan
    from beam_tfrecord.jobs.api import schema as schema
    from beam_tfrecord.jobs.api import write as write
    from beam_tfrecord.preprocess.transform import Preprocess as Preprocess
    from beam_tfrecord.rows.batch import Batch as Batch
    from beam_tfrecord.runners import pipeline as pipeline
    from beam_tfrecord.transforms.assign_splits import AssignSplits as AssignSplits
    from beam_tfrecord.transforms.extract import ExtractToParquet as ExtractToParquet
    from beam_tfrecord.transforms.map_rows import MapBatches as MapBatches
    from beam_tfrecord.transforms.map_rows import MapRows as MapRows
    from beam_tfrecord.transforms.read import ReadFromArrow as ReadFromArrow
    from beam_tfrecord.transforms.read import ReadFromAvro as ReadFromAvro
    from beam_tfrecord.transforms.read import ReadFromCoco as ReadFromCoco
    from beam_tfrecord.transforms.read import ReadFromCsv as ReadFromCsv
    from beam_tfrecord.transforms.read import ReadFromDelta as ReadFromDelta
    from beam_tfrecord.transforms.read import ReadFromExcel as ReadFromExcel
    from beam_tfrecord.transforms.read import ReadFromIceberg as ReadFromIceberg
    from beam_tfrecord.transforms.read import ReadFromImages as ReadFromImages
    from beam_tfrecord.transforms.read import ReadFromJson as ReadFromJson
    from beam_tfrecord.transforms.read import ReadFromNumpy as ReadFromNumpy
    from beam_tfrecord.transforms.read import ReadFromOrc as ReadFromOrc
    from beam_tfrecord.transforms.read import ReadFromParquet as ReadFromParquet
    from beam_tfrecord.transforms.read import ReadFromSql as ReadFromSql
    from beam_tfrecord.transforms.read import ReadFromTFRecord as ReadFromTFRecord
    from beam_tfrecord.transforms.read import ReadFromWebDataset as ReadFromWebDataset
    from beam_tfrecord.transforms.read_all import ReadAllFromArrow as ReadAllFromArrow
    from beam_tfrecord.transforms.read_all import ReadAllFromAvro as ReadAllFromAvro
    from beam_tfrecord.transforms.read_all import ReadAllFromCsv as ReadAllFromCsv
    from beam_tfrecord.transforms.read_all import ReadAllFromJson as ReadAllFromJson
    from beam_tfrecord.transforms.read_all import ReadAllFromOrc as ReadAllFromOrc
    from beam_tfrecord.transforms.read_all import ReadAllFromParquet as ReadAllFromParquet
    from beam_tfrecord.transforms.read_all import ReadAllFromTFRecord as ReadAllFromTFRecord
    from beam_tfrecord.transforms.read_all import ReadAllFromWebDataset as ReadAllFromWebDataset
    from beam_tfrecord.transforms.rows import BatchRows as BatchRows
    from beam_tfrecord.transforms.rows import EncodeExamples as EncodeExamples
    from beam_tfrecord.transforms.rows import ToExample as ToExample
    from beam_tfrecord.transforms.rows import ToRows as ToRows
    from beam_tfrecord.transforms.write import WriteToTFRecord as WriteToTFRecord

if sys.platform == "win32":
    raise ImportError("beam_tfrecord runs on Linux and macOS; on Windows, use it in WSL")
if not os.path.exists(f"{__path__[0]}/native/_index.abi3.so"):
    raise ImportError(
        f"{__path__[0]} is source code without its compiled kernel, and hides the installed "
        "package: run Python in another folder, or run: pip install -e ."
    )


def _is_wanted(record: logging.LogRecord) -> bool:
    """Filter the warning that Beam's first import makes without its extra for Google Cloud."""
    if not str(record.msg).startswith("apitools not found"):
        return True
    logging.getLogger().removeFilter(_is_wanted)
    return False


logging.getLogger().addFilter(_is_wanted)

_MODULE_OF = {
    "rows.batch": ("Batch",),
    "check.diff": ("diff",),
    "errors": ("BeamTFRecordError",),
    "jobs.api": ("extract", "plan", "schema", "write"),
    "format.manifest": ("Manifest",),
    "preprocess.transform": ("Preprocess",),
    "dataset.load": ("load",),
    "dataset.make_index": ("index",),
    "check.repair": ("repair",),
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
    "check.verify": ("verify",),
    "transforms.write": ("WriteToTFRecord",),
}
_HOME = {name: module for module, names in _MODULE_OF.items() for name in names}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
