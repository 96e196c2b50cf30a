from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from beam_tfrecord.errors import BeamTFRecordError, DataError, SchemaConflict
from beam_tfrecord.faults import record_fault, recorded, recorded_fault


def halves(number: int) -> Iterator[int]:
    yield number // 2
    if number % 2:
        raise SchemaConflict(f"{number} is odd")
    yield number // 2


def breaks(number: int) -> Iterator[int]:
    yield 1 // number


def test_what_a_step_yields_goes_through(tmp_path: Path) -> None:
    assert list(recorded(halves, str(tmp_path))(8)) == [4, 4]
    assert recorded_fault(str(tmp_path)) is None


def test_an_error_is_raised_and_found_again(tmp_path: Path) -> None:
    directory = str(tmp_path / "new")
    with pytest.raises(SchemaConflict):
        list(recorded(halves, directory)(7))
    fault = recorded_fault(directory)
    assert type(fault) is SchemaConflict
    assert str(fault) == "7 is odd"


def test_an_error_nobody_meant_is_not_written_down(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        list(recorded(breaks, str(tmp_path))(0))
    assert recorded_fault(str(tmp_path)) is None


def test_of_several_errors_the_first_by_text_is_found(tmp_path: Path) -> None:
    for text in ("b", "a", "c"):
        record_fault(str(tmp_path), DataError(text))
    assert str(recorded_fault(str(tmp_path))) == "a"


def test_an_error_of_unknown_kind_is_still_ours(tmp_path: Path) -> None:
    class Odd(BeamTFRecordError):
        pass

    record_fault(str(tmp_path), Odd("x"))
    assert type(recorded_fault(str(tmp_path))) is BeamTFRecordError


def test_without_a_directory_nothing_is_written() -> None:
    with pytest.raises(SchemaConflict):
        list(recorded(halves, None)(7))
    assert recorded_fault("/nowhere/at/all") is None


def test_a_wrapped_step_can_be_sent_to_a_worker(tmp_path: Path) -> None:
    wrapped = pickle.loads(pickle.dumps(recorded(halves, str(tmp_path))))
    assert list(wrapped(2)) == [1, 1]
