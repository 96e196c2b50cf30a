"""TensorFlow Datasets and mlcroissant, in environments of their own, read what `describe` wrote."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from numpy.testing import assert_equal

import beam_tfrecord as bt
from tests.helpers.described import arrays, plain, python_rows, table

_TFDS = """
import pickle, sys, tensorflow_datasets as tfds
made = tfds.builder_from_directory(sys.argv[1])
full = [name for name, of in made.info.splits.items() if of.num_examples]
rows = {name: list(made.as_dataset(split=name).as_numpy_iterator()) for name in full}
labels = {name: of.names for name, of in made.info.features.items() if hasattr(of, "names")}
pickle.dump((rows, labels, tfds.__version__), sys.stdout.buffer)
"""
_CROISSANT = """
import hashlib, importlib.metadata, pathlib, pickle, sys, mlcroissant as mlc
found, folder = mlc.Dataset(jsonld=sys.argv[1] + "/croissant.json"), pathlib.Path(sys.argv[1])
files = [of for of in found.metadata.distribution if isinstance(of, mlc.FileObject)]
for of in files:
    assert hashlib.sha256((folder / of.content_url).read_bytes()).hexdigest() == of.sha256
counts = {row["splits/name"]: row["splits/examples"] for row in found.records("splits")}
fields = {of.name for of in found.metadata.record_sets[-1].fields if of.name != "split"}
version = importlib.metadata.version("mlcroissant")
pickle.dump((len(files), counts, fields, version), sys.stdout.buffer)
"""


def prove() -> dict[str, Any]:
    """Return what was compared; a value that differs ends it."""
    compared = dict.fromkeys(("datasets", "columns", "values"), 0)
    left_out, readers = dict[str, str](), dict[str, str]()
    with tempfile.TemporaryDirectory() as name:
        tfds = _environment(Path(name) / "tfds", "tensorflow-datasets", "tensorflow-cpu")
        mlc = _environment(Path(name) / "mlc", "mlcroissant")
        for number, (inputs, expected, options) in enumerate(_datasets()):
            output = f"{name}/{number}"
            manifest = bt.write(inputs, output, **options)
            done, dataset = bt.describe(output), bt.load(output)
            left_out |= done.left_out
            files, counts, fields, readers["mlcroissant"] = _run(mlc, _CROISSANT, output)
            assert (files, counts) == (len(manifest.shards), dataset.splits)
            assert fields == expected.keys()
            compared["datasets"] += 1
            if manifest.compression:
                continue
            rows, labels, readers["tensorflow-datasets"] = _run(tfds, _TFDS, output)
            assert labels == {"label": ["cat", "dog"]} if "label" in expected else not labels
            known = expected.keys() - done.left_out.keys()
            for split in dataset.splits:
                read = {int(row["id"]): row for row in rows.get(split, [])}
                ids = bt.load(output, split=split, columns=["id"]).numpy()["id"].tolist()
                assert [*read] == ids if not options.get("shuffle", True) else {*read} == {*ids}
                for id, row in read.items():
                    assert row.keys() == known
                    for key in known:
                        assert_equal(plain(row[key]), plain(expected[key][id]), key)
                compared["values"] += len(read) * len(known)
            compared["columns"] += len(known)
    return {**compared, "left out": left_out, "readers": readers}


def _environment(directory: Path, *packages: str) -> Path:
    """Return a Python in an environment of its own that has only these packages."""
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    subprocess.run([directory / "bin/pip", "install", "-q", *packages], check=True)
    return directory / "bin/python"


def _run(python: Path, program: str, argument: str) -> Any:
    command = [python, "-I", "-c", program, argument]
    return pickle.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def _datasets() -> Iterator[tuple[Any, dict[str, Any], dict[str, Any]]]:
    """Yield inputs, what a reader of each key gets by row, and how the input is written."""
    rows, expected = table()
    splits = {"train": 0.6, "test-1": 0.4, "none": 0.0}
    yield rows, expected, {"splits": splits, "shards": 3}
    yield rows, expected, {"splits": splits, "compression": "gzip"}
    exact = arrays()
    yield exact, exact, {"shuffle": False, "shards": 4}
    floats = {name: of for name, of in exact.items() if name not in ("float64", "complex128")}
    yield floats, floats, {"store": "values"}
    dicts, expected = python_rows()
    label = bt.Feature(type="int64", labels=("cat", "dog"))
    yield dicts, expected, {"schema": bt.schema(dicts).edit(label=label)}
