"""Checks that the optional packages of a feature are installed, or names the pip command."""

from __future__ import annotations

import importlib.util

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
    "images": (("PIL.Image",), "Pillow", "beam-tfrecord[images]"),
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
    "hadoop": (("hdfs",), "Beam's Hadoop extra", "apache-beam[hadoop]"),
}


def require(extra: str, feature: str) -> None:
    """Check that the packages of a feature are installed, without importing them.

    Args:
        extra: A key of `_EXTRAS`.
        feature: Name of the feature, for the message.

    Raises:
        UsageError: A package is not installed.
    """
    modules, name, package = _EXTRAS[extra]
    if not all(map(_is_installed, modules)):
        raise UsageError(f"{feature} needs {name}: pip install '{package}'")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        # A parent package of the module is missing.
        return False
    except ValueError:
        # The module is loaded, but its spec is None.
        return True
