"""Checks that the optional packages of a feature are installed, and imports TensorFlow quietly."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator

from beam_tfrecord.errors import UsageError

# For each extra: modules to look for, the name for messages, and the requirement for pip.
_EXTRAS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "tensorflow": (("tensorflow",), "TensorFlow", "beam-tfrecord[tensorflow]"),
    "transform": (
        ("tensorflow_transform", "tfx_bsl", "tensorflow"),
        "tensorflow-transform, which is there for Linux on x86-64 and macOS on Arm",
        "beam-tfrecord[transform]",
    ),
    "torch": (("torch",), "PyTorch", "torch"),
    "grain": (("grain",), "Grain", "grain"),
    "pandas": (("pandas",), "pandas", "pandas"),
    "polars": (("polars",), "polars", "polars"),
    "pixels": (("simplejpeg",), "simplejpeg", "beam-tfrecord[images]"),
    "coco": (("pycocotools",), "pycocotools", "beam-tfrecord[coco]"),
    "gcp": (
        ("google.cloud.storage", "google.api_core", "google.auth"),
        "google-cloud-storage",
        "beam-tfrecord[gcp]",
    ),
    "azure": (
        ("azure.storage.blob", "azure.identity"),
        "azure-storage-blob",
        "beam-tfrecord[azure]",
    ),
    "delta": (("deltalake",), "deltalake", "beam-tfrecord[delta]"),
    "iceberg": (("pyiceberg",), "pyiceberg", "beam-tfrecord[iceberg]"),
    "postgres": (
        ("adbc_driver_postgresql", "adbc_driver_manager"),
        "adbc-driver-postgresql",
        "beam-tfrecord[postgres]",
    ),
    "duckdb": (("duckdb",), "duckdb", "beam-tfrecord[duckdb]"),
    "jdbc": (("jpype",), "jpype1", "beam-tfrecord[jdbc]"),
    "excel": (("openpyxl",), "openpyxl", "beam-tfrecord[excel]"),
    "hadoop": (("hdfs",), "Beam's Hadoop extra", "apache-beam[hadoop]"),
}
# What pip adds to the core, and how long it took; others are small.
_WEIGHTS = {"tensorflow": "2 GB, 1 minute", "transform": "2.5 GB, 75 seconds", "torch": "3 GB"}


def require(extra: str, feature: str) -> None:
    """Check that the packages of a feature are installed, without importing them."""
    modules, name, package = _EXTRAS[extra]
    if not all(map(_is_installed, modules)):
        weight = f" (about {_WEIGHTS[extra]})" if extra in _WEIGHTS else ""
        raise UsageError(f"{feature} needs {name}: pip install '{package}'{weight}")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        # A parent package of the module is missing.
        return False
    except ValueError:
        # The module is loaded, but its spec is None.
        return True


TENSORFLOW_LOG = "TF_CPP_MIN_LOG_LEVEL"


def import_tensorflow(module: str = "tensorflow_transform.beam") -> None:
    """Import a module that uses TensorFlow, without the log of its C++ code on stderr.

    The log comes past Python's logging and says nothing that a user could act on. It remains if the
    user has set TensorFlow's own variable for its level.
    """
    if TENSORFLOW_LOG in os.environ:
        return
    os.environ[TENSORFLOW_LOG] = "3"
    # Its libraries print some lines when they are loaded, before they read the variable.
    with _without_stderr():
        importlib.import_module(module)


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """Drop what this process writes to the file descriptor of stderr during the block."""
    try:
        before = os.dup(2)
    except OSError:  # It is closed.
        yield
        return
    with open(os.devnull, "wb") as null:
        sys.stderr.flush()
        os.dup2(null.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)
