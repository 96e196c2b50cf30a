"""A pipeline of one's own that fails: one short traceback, which ends at the user's line."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator

import apache_beam as beam
import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import RejectedRows, UsageError
from beam_tfrecord.runners.failures import short_error
from tests.helpers.tf_example import Example


class Divides(beam.DoFn):
    def process(self, row: dict[str, int]) -> Iterator[dict[str, int]]:
        yield {"x": 1 // row["x"]}


def fails_on_zero(row: dict[str, int]) -> dict[str, int]:
    return {"x": 1 // row["x"]}


@pytest.fixture
def zeros(tmp_path):
    (tmp_path / "a.csv").write_text("x\n1\n0\n0\n")
    return str(tmp_path / "a.csv")


def run(*steps):
    with bt.pipeline() as root:
        rows = root
        for step in steps:
            rows = rows | step


def test_an_error_of_the_users_code_ends_at_its_line(zeros, tmp_path, capfd, caplog):
    steps = (bt.ToRows(), beam.ParDo(Divides()), bt.WriteToTFRecord(f"{tmp_path}/out/"))
    with (
        caplog.at_level(logging.DEBUG, "beam_tfrecord.runners.pipelines"),
        pytest.raises(RuntimeError) as raised,
    ):
        run(bt.ReadFromCsv(zeros), *steps)
    first, frame, code, *_ = str(raised.value).splitlines()
    assert first.startswith("ZeroDivisionError: integer division or modulo by zero")
    assert first.endswith(" [while running 'ParDo(Divides)']")
    assert frame.startswith(f'  File "{__file__}", line ')
    assert code.strip() == 'yield {"x": 1 // row["x"]}'
    shown = "".join(traceback.format_exception(raised.value))
    assert shown.count("Traceback") == 1
    assert len(shown.splitlines()) < 30
    assert capfd.readouterr().err == ""
    # The traceback of Beam is in the log.
    assert any("sdk_worker" in str(record.exc_text) for record in caplog.records)


def return_example(row: dict[str, int]) -> Example:
    return Example()


def interrupted(row: dict[str, int]) -> dict[str, int]:
    raise KeyboardInterrupt


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("function", [interrupted, lambda row: interrupted(row)])
def test_an_interrupt_is_one_line(zeros, tmp_path, function):
    with pytest.raises(KeyboardInterrupt) as raised:
        bt.write(zeros, tmp_path / "out", map=function)
    assert str(raised.value).startswith("interrupted: nothing was published")
    assert len("".join(traceback.format_exception(raised.value)).splitlines()) < 20
    with pytest.raises(KeyboardInterrupt):
        run(bt.ReadFromCsv(zeros), bt.ToRows(), beam.Map(function))


def first_of_none(row: dict[str, int]) -> Iterator[int]:
    yield next(x for x in () if x)


def lazy(row: dict[str, int]) -> Iterator[int]:
    return map(int, ["a"])


def read_key(row: dict[str, int]) -> list[int]:
    return [row["mass"]]


@pytest.mark.parametrize(
    ("function", "lines"),
    [
        (
            return_example,
            [
                "TypeError: 'Example' object is not iterable [while running 'Step']",
                "  the function of this step returned no list: yield the value, or return [value]",
            ],
        ),
        (first_of_none, ["generator raised StopIteration [while", f'  File "{__file__}", line ']),
        (
            lazy,
            [
                "ValueError: invalid literal for int() with base 10: 'a' [while running 'Step']",
                "  in the iterator that the function of this step returned",
            ],
        ),
        (read_key, ["KeyError: 'mass' [while running 'Step']", f'  File "{__file__}", line ']),
    ],
)
def test_a_function_that_returns_no_list_or_has_no_such_key(zeros, function, lines):
    with pytest.raises(RuntimeError) as raised:
        run(bt.ReadFromCsv(zeros), bt.ToRows(), "Step" >> beam.FlatMap(function))
    for line, expected in zip(str(raised.value).splitlines(), lines, strict=False):
        assert line.startswith(expected)
    assert len("".join(traceback.format_exception(raised.value)).splitlines()) < 30


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    ("path", "step", "kind", "message"),
    [
        ("missing.csv", None, UsageError, "cannot read .*missing.csv': no such file: check"),
        (None, bt.MapRows(fails_on_zero), RejectedRows, r"made the map .*\n  2 rows: .*\n .*also"),
    ],
)
def test_an_error_of_this_package_is_raised_itself(zeros, tmp_path, path, step, kind, message):
    steps = () if step is None else (step,)
    with pytest.raises(kind, match=message) as raised:
        run(bt.ReadFromCsv(path or zeros), *steps, bt.WriteToTFRecord(f"{tmp_path}/out/"))
    assert "while running" not in str(raised.value)
    assert "".join(traceback.format_exception(raised.value)).count("Traceback") == 1


def test_an_error_without_the_users_code_stays_as_it_is():
    text = 'Traceback (most recent call last):\n  File "beam/x.py", line 1, in f\nValueError: y'
    assert short_error(RuntimeError(text)) is None
    assert short_error(RuntimeError("lost")) is None
