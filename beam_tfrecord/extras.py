"""Packages that some features need and the package itself does not: what installs them."""

from __future__ import annotations

import importlib.util

from beam_tfrecord.errors import UsageError

# What is looked for, as people call it and as pip installs it.
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
    """Make sure that the packages of a feature are installed, without importing them.

    Args:
        extra: A key of the table above.
        feature: What needs them, for the message.

    Raises:
        UsageError: They are not.
    """
    modules, name, package = _EXTRAS[extra]
    if not all(map(_is_installed, modules)):
        raise UsageError(f"{feature} needs {name}: pip install '{package}'")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        # Of a package around it.
        return False
    except ValueError:
        # It is loaded, and by something that left no note of where from.
        return True
