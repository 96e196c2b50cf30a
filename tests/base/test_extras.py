"""Each feature without the packages it needs: one line with the command that installs them.

A machine without Java is tried in `tests/sources/test_sql_jdbc_process.py`.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_tfrecord as bt
from beam_tfrecord.base.extras import TENSORFLOW_LOG, import_tensorflow
from tests.helpers import warm
from tests.sources.made_images import jpeg

ROOT = Path(__file__).parents[2]

# Hides packages from the import system, then runs commands and lines of Python one by one.
WITHOUT = """
import contextlib, io, json, sys, traceback, warnings
warnings.simplefilter("ignore")
hidden, runs = json.loads(sys.argv[1])
# But for namespaces, which a file of the environment makes as Python starts.
assert not [name for name in hidden if getattr(sys.modules.get(name), "__file__", None)]
class Hide:
    def find_spec(self, name, path=None, target=None):
        if any(name == one or name.startswith(one + ".") for one in hidden):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
import beam_tfrecord as bt
from beam_tfrecord.cli.main import cli
found = []
for command, code in runs:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            if command:
                cli.main(command.split(), prog_name="beam-tfrecord")
            else:
                exec(code)
            result = 0
        except SystemExit as end:
            result = end.code or 0
        except bt.BeamTFRecordError as error:
            print(f"error: {error}", file=sys.stderr)
            result = error.exit_code
        except BaseException:
            traceback.print_exc()
            result = "raised"
    found.append((result, said.getvalue().strip().splitlines()))
print("\\n" + json.dumps(found))
"""

TENSORFLOW = ("tensorflow",)
TRANSFORM = ("tensorflow_transform", "tfx_bsl")
POSTGRES = ("adbc_driver_postgresql", "adbc_driver_manager")
GCP = ("google.cloud", "google.auth", "google.api_core")
AZURE = ("azure",)
AWS = ("boto3", "botocore")
DATABASE = "postgresql://u@localhost:1/d"
DATAFLOW = (
    "write in.csv gs://b/out --runner dataflow --project p --region r --temp-location gs://b/t"
)
# Beam imports them where they are, so hiding them takes a process that has not imported Beam.
BEAMS = {"apache_beam.io.gcp", "pandas", *AWS, *GCP, *AZURE}

COMMANDS = (
    (TRANSFORM, "write in.csv out --step zscore=id", "beam-tfrecord[transform]"),
    (TENSORFLOW, "write in.csv out --step zscore=id", "beam-tfrecord[transform]"),
    (TRANSFORM, "write in.csv out --transform-fn fn", "beam-tfrecord[transform]"),
    (TRANSFORM, "plan in.csv out --transform f.py:f", "beam-tfrecord[transform]"),
    (POSTGRES, f"write {DATABASE} out --table t", "beam-tfrecord[postgres]"),
    (POSTGRES[1:], f"schema {DATABASE} --table t", "beam-tfrecord[postgres]"),
    (("jpype",), "write jdbc:h2:mem:x out --table t", "beam-tfrecord[jdbc]"),
    (("duckdb",), "write duckdb:///a.duckdb out --table t", "beam-tfrecord[duckdb]"),
    (("deltalake",), "write lake out", "beam-tfrecord[delta]"),
    (("pycocotools",), "write a.json out --from coco --masks objects", "beam-tfrecord[coco]"),
    (("openpyxl",), "write a.xlsx out", "beam-tfrecord[excel]"),
    (("pyiceberg",), "write iceberg://mine/db.t out", "beam-tfrecord[iceberg]"),
    (AWS, "write s3://b/in.csv out", "beam-tfrecord[aws]"),
    (AWS, "write in.csv s3://b/out", "beam-tfrecord[aws]"),
    (AWS, "show s3://b/out", "beam-tfrecord[aws]"),
    (GCP, "write gs://b/in.csv out", "beam-tfrecord[gcp]"),
    (GCP, "write in.csv gs://b/out", "beam-tfrecord[gcp]"),
    ((*GCP, "apache_beam.io.gcp"), DATAFLOW, "beam-tfrecord[gcp]"),
    (AZURE, "write az://c/in.csv out", "beam-tfrecord[azure]"),
    (AZURE, "write in.csv az://c/out", "beam-tfrecord[azure]"),
    (AZURE, "verify azfs://a/c/out", "beam-tfrecord[azure]"),
    (("hdfs",), "write hdfs://in.csv out", "apache-beam[hadoop]"),
)

CODE = (
    (TENSORFLOW, "bt.load('dataset').tf()", "beam-tfrecord[tensorflow]"),
    (TENSORFLOW, "bt.load('dataset').schema.feature_spec()", "beam-tfrecord[tensorflow]"),
    (
        TENSORFLOW,
        "import pyarrow, apache_beam as beam; p = bt.pipeline(options=[]); "
        "p | beam.Create([{}]) | bt.ToExample(pyarrow.schema([])); p.run()",
        "beam-tfrecord[tensorflow]",
    ),
    (("torch",), "bt.load('dataset').torch()", "torch"),
    (TRANSFORM, "bt.Preprocess([{'op': 'zscore', 'columns': ['id']}])", "beam-tfrecord[transform]"),
    (
        POSTGRES,
        f"list(bt.ReadFromSql('{DATABASE}', table='t').batches())",
        "beam-tfrecord[postgres]",
    ),
    (("simplejpeg",), "bt.load('photos').torch(1)", "beam-tfrecord[images]"),
    (AWS, "bt.load('s3://b/out')", "beam-tfrecord[aws]"),
    (GCP, "bt.load('gs://b/out')", "beam-tfrecord[gcp]"),
)

# Each set of packages takes a process of its own.
HIDDEN = sorted({",".join(case[0]) for case in [*COMMANDS, *CODE]})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a directory with an input of each kind and a dataset."""
    directory = tmp_path_factory.mktemp("extras")
    (directory / "in.csv").write_text("id,name\n1,a\n2,b\n")
    (directory / "a.xlsx").touch()
    (directory / "lake" / "_delta_log").mkdir(parents=True)
    (directory / "lake" / "_delta_log" / "0.json").touch()
    (directory / "a.duckdb").write_bytes(b"\0" * 8 + b"DUCK" + b"\0" * 4084)
    (directory / "f.py").write_text("def f(columns):\n    return columns\n")
    (directory / "pictures" / "cat").mkdir(parents=True)
    (directory / "pictures" / "cat" / "a.jpg").write_bytes(jpeg())
    bt.write(directory / "pictures", directory / "photos")
    pq.write_table(pa.table({"id": [1, 2]}), directory / "in.parquet")
    bt.write(directory / "in.parquet", directory / "dataset")
    return directory


def without(place, hidden, runs):
    """Return the exit code of each command or piece of Python, and what it said."""
    python = warm.program() if BEAMS.isdisjoint(hidden) else (sys.executable,)
    done = subprocess.run(
        [*python, "-c", WITHOUT, json.dumps([list(hidden), runs])],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def one_line(place, found):
    """Return the error of a command that published nothing."""
    code, lines = found
    assert code == 2, lines
    errors = [line for line in lines if not line.startswith("reading ")]
    assert len(errors) == 1, lines
    assert errors[0].startswith("error: ")
    assert not (place / "out" / "manifest.json").exists()
    return errors[0]


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("hidden", HIDDEN)
def test_each_feature_names_what_to_install(place, hidden):
    packages = tuple(hidden.split(","))
    commands = [(text, "", package) for names, text, package in COMMANDS if names == packages]
    codes = [("", text, package) for names, text, package in CODE if names == packages]
    runs = [*commands, *codes]
    found = without(place, packages, [(command, code) for command, code, _ in runs])
    for (command, code, package), result in zip(runs, found, strict=True):
        line = one_line(place, result)
        assert f"pip install '{package}'" in line, command or code
        assert "transform" not in package or "(about 2.5 GB, 75 seconds)" in line


# Quick tests run where there are no extras.
@pytest.mark.slow
def test_what_needs_no_extra_works_without_all(place):
    hidden = {one for case in [*COMMANDS, *CODE] for one in case[0]} | {"pandas", "scipy"}
    np.savez(place / "arrays.npz", x=np.zeros((3, 2, 2), np.uint8), y=np.arange(3))
    commands = [
        "write in.csv all",
        "write in.csv mapped --map f.py:f",
        "write pictures all-pictures",
        "write arrays.npz all-arrays",
        "extract in.csv stage",
        "plan in.csv other",
        "schema in.csv",
        "show all-arrays --code tf",
        "head all-arrays",
        "verify dataset",
    ]
    runs = [(command, "") for command in commands]
    runs += [("", f"bt.load({name!r}).numpy()") for name in ("mapped", "all-arrays", "in.parquet")]
    for run, (code, lines) in zip(runs, without(place, hidden, runs), strict=True):
        assert code == 0, (run, lines)


@pytest.mark.parametrize("level", [None, "0"])
def test_tensorflow_is_imported_quietly_unless_its_log_is_wanted(
    tmp_path, monkeypatch, capfd, level
):
    # Stands for a C++ library, which writes past Python.
    (tmp_path / "noisy.py").write_text("import os\nos.write(2, b'I0000 a device\\n')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "noisy", raising=False)
    # Set, then deleted, so that the test's end also deletes what the function sets.
    monkeypatch.setenv(TENSORFLOW_LOG, level or "")
    if level is None:
        monkeypatch.delenv(TENSORFLOW_LOG)
    import_tensorflow("noisy")
    importlib.import_module("noisy")
    os.write(2, b"after\n")
    assert capfd.readouterr().err == ("after\n" if level is None else "I0000 a device\nafter\n")
    assert os.environ[TENSORFLOW_LOG] == (level or "3")


def test_beam_does_not_warn_of_its_missing_extra():
    code = (
        "import logging, beam_tfrecord\n"
        "logging.warning('apitools not found, and bigquery client libraries are not available')\n"
        "logging.warning('something else')\n"
        "assert not logging.getLogger().filters\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "WARNING:root:something else\n")
