"""The user's function: found, hashed, pickled, and refused with a reason."""

import functools
import hashlib
import pickle
import subprocess
import sys
import textwrap

import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.rows.user_function import load_map, source_sha256

DOUBLE = """\
import dataclasses

FACTOR = 2

@dataclasses.dataclass
class Row:
    x: int

def double(row):
    return {"x": Row(row["x"]).x * FACTOR}
"""


@pytest.fixture(autouse=True)
def clean_imports(monkeypatch, tmp_path):
    """Imports of a test's files are undone after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def write(path, text):
    path.write_text(textwrap.dedent(text))
    return str(path)


def module_level(row):
    return row


def test_function_of_a_file(tmp_path):
    path = write(tmp_path / "prep.py", DOUBLE)
    found = load_map(f"{path}:double")
    assert found({"x": 21}) == {"x": 42}
    assert found.name == f"{path}:double"
    assert found.sha256 == hashlib.sha256(DOUBLE.encode()).hexdigest()


def test_function_of_a_module_in_the_current_directory(tmp_path, monkeypatch):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    write(tmp_path / "shop" / "prep.py", DOUBLE)
    monkeypatch.chdir(tmp_path)
    found = load_map("shop.prep:double")
    assert found({"x": 1}) == {"x": 2}
    assert found.sha256 == hashlib.sha256(DOUBLE.encode()).hexdigest()


def test_a_file_imports_its_neighbour(tmp_path):
    write(tmp_path / "map_neighbour.py", "FACTOR = 5\n")
    path = write(
        tmp_path / "prep.py",
        "import map_neighbour\ndef f(row):\n    return row['x'] * map_neighbour.FACTOR\n",
    )
    assert load_map(f"{path}:f")({"x": 2}) == 10


def test_a_function_of_a_file_travels_without_the_file(tmp_path):
    path = write(tmp_path / "prep.py", DOUBLE)
    data = pickle.dumps(load_map(f"{path}:double"))
    (tmp_path / "prep.py").unlink()
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)({'x': 4}))"
    ran = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert ran.stdout == b"{'x': 8}\n"


def test_a_function_itself(tmp_path):
    found = load_map(module_level)
    assert found.function is module_level
    assert found.name.endswith("test_mapping:module_level")
    with open(__file__, "rb") as file:
        assert found.sha256 == hashlib.sha256(file.read()).hexdigest()
    assert pickle.loads(pickle.dumps(found)) == found
    assert load_map(found) is found


class Callable:
    def __call__(self, row):
        return row


def closure(factor):
    def inner(row):
        return row * factor

    return inner


@pytest.mark.parametrize(
    "function",
    [lambda row: row, closure(2), functools.partial(module_level), Callable(), len],
    ids=["lambda", "closure", "partial", "object", "builtin"],
)
def test_no_hash_where_the_source_does_not_say_it_all(function):
    assert source_sha256(function) is None
    assert load_map(function).sha256 is None


def test_no_hash_in_a_notebook(monkeypatch):
    namespace = {"__name__": "cells"}
    exec("def f(row):\n    return row", namespace)
    assert source_sha256(namespace["f"]) is None


def test_batches_by_annotation(tmp_path):
    path = write(
        tmp_path / "prep.py",
        """\
        import pyarrow as pa

        def rows(row: dict): ...
        def batches(data: pa.RecordBatch) -> pa.RecordBatch: ...
        def text(data: "pa.RecordBatch"): ...
        def bare(row): ...
        def none(): ...
        """,
    )
    assert {
        name: load_map(f"{path}:{name}").takes_batches
        for name in ("rows", "batches", "text", "bare", "none")
    } == {"rows": False, "batches": True, "text": True, "bare": False, "none": False}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("double", "cannot read map 'double': write module:function or file.py:function"),
        ("prep.py", "cannot read map 'prep.py': write module:function or file.py:function"),
        ("prep.py:dubble", "there is no function 'dubble': did you mean 'double'?"),
        ("prep.py:FACTOR", "map 'prep.py:FACTOR': 'FACTOR' is not a function but 2"),
        ("none.py:f", "cannot read map file 'none.py': no such file or directory"),
        ("no_such_module:f", "cannot find module 'no_such_module' of map 'no_such_module:f'"),
        ("needs.py:f", "needs.py:1: No module named 'no_such_library'"),
        ("broken.py:f", "broken.py:2: ZeroDivisionError: division by zero"),
        ("typo.py:f", "SyntaxError: "),
        ("binary.py:f", "cannot read map file 'binary.py': not utf-8 text"),
    ],
)
def test_faults_in_one_line(spec, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "prep.py", DOUBLE)
    write(tmp_path / "needs.py", "import no_such_library\n")
    write(tmp_path / "broken.py", "import os\nX = 1 / 0\n")
    write(tmp_path / "typo.py", "def f(row:\n")
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError) as error:
        load_map(spec)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_not_a_function():
    with pytest.raises(
        UsageError, match=r"map 3 is not a function: give one, or 'module:function'"
    ):
        load_map(3)
