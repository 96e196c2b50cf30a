"""TensorFlow Datasets and mlcroissant, in environments of their own, read what `describe` wrote."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import beam_tfrecord as bt
from tests.helpers import described

_TFDS = """
import pickle, sys, tensorflow_datasets as tfds
made = tfds.builder_from_directory(sys.argv[1])
full = [name for name, of in made.info.splits.items() if of.num_examples]
rows = {name: list(made.as_dataset(split=name).as_numpy_iterator()) for name in full}
labels = {name: of.names for name, of in made.info.features.items() if hasattr(of, "names")}
pickle.dump((rows, labels), sys.stdout.buffer)
"""
_CROISSANT = """
import hashlib, pathlib, pickle, sys, mlcroissant as mlc
found, folder = mlc.Dataset(jsonld=sys.argv[1] + "/croissant.json"), pathlib.Path(sys.argv[1])
files = [of for of in found.metadata.distribution if isinstance(of, mlc.FileObject)]
for of in files:
    assert hashlib.sha256((folder / of.content_url).read_bytes()).hexdigest() == of.sha256
counts = {row["splits/name"]: row["splits/examples"] for row in found.records("splits")}
fields = {of.name for of in found.metadata.record_sets[-1].fields if of.name != "split"}
pickle.dump((len(files), counts, fields), sys.stdout.buffer)
"""


def prove() -> dict[str, Any]:
    """Return what was compared; a value that differs ends it."""
    compared = dict.fromkeys(("datasets", "columns", "values"), 0)
    left_out: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        tfds = _environment(Path(name) / "tfds", "tensorflow-datasets", "tensorflow-cpu")
        mlc = _environment(Path(name) / "mlc", "mlcroissant")
        for number, (inputs, expected, options) in enumerate(_datasets()):
            output = f"{name}/{number}"
            manifest = bt.write(inputs, output, **options)
            done, dataset = bt.describe(output), bt.load(output)
            left_out |= done.left_out
            files, counts, fields = _run(mlc, _CROISSANT, output)
            assert (files, counts) == (len(manifest.shards), dataset.splits)
            assert fields == expected.keys()
            assert bt.verify(output).ok
            compared["datasets"] += 1
            if manifest.compression:
                continue
            rows, labels = _run(tfds, _TFDS, output)
            assert labels == {"label": ["cat", "dog"]} if "label" in expected else not labels
            known = expected.keys() - done.left_out.keys()
            for split in dataset.splits:
                read = {int(row["id"]): row for row in rows.get(split, [])}
                ids = bt.load(output, split=split, columns=["id"]).numpy()["id"].tolist()
                assert [*read] == ids if not options.get("shuffle", True) else {*read} == {*ids}
                for id, row in read.items():
                    assert row.keys() == known
                    for key in known:
                        np.testing.assert_equal(
                            described.plain(row[key]), described.plain(expected[key][id]), key
                        )
                compared["values"] += len(read) * len(known)
            compared["columns"] += len(known)
    return {**compared, "left out": left_out}


def _environment(directory: Path, *packages: str) -> Path:
    """Return a Python in an environment of its own that has only these packages."""
    subprocess.run([sys.executable, "-m", "venv", directory], check=True)
    subprocess.run([directory / "bin/pip", "install", "-q", *packages], check=True)
    return directory / "bin/python"


def _run(python: Path, program: str, output: str) -> Any:
    command = [python, "-I", "-c", program, output]
    return pickle.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def _datasets() -> Iterator[tuple[Any, dict[str, Any], dict[str, Any]]]:
    """Yield inputs, what a reader of each key gets by row, and how the input is written."""
    table, expected = described.table()
    splits = {"train": 0.6, "test-1": 0.4, "none": 0.0}
    yield table, expected, {"splits": splits, "shards": 3}
    yield table, expected, {"splits": splits, "compression": "gzip"}
    arrays = described.arrays()
    yield arrays, arrays, {"shuffle": False, "shards": 4}
    exact = {name: of for name, of in arrays.items() if name not in ("float64", "complex128")}
    yield exact, exact, {"store": "values"}
    rows, expected = described.python_rows()
    label = bt.Feature(type="int64", labels=("cat", "dog"))
    yield rows, expected, {"schema": bt.schema(rows).edit(label=label)}
