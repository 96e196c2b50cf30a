import errno
import os

import pytest

import beam_tfrecord as bt
from beam_tfrecord.errors import DataError, LeaseLost, RejectedRows, SchemaConflict, StorageError
from beam_tfrecord.job_state.worker_errors import (
    Guarded,
    forget_faults,
    machine_error,
    record_fault,
    recorded_fault,
    stop,
)


def halves(number):
    yield number // 2
    if number % 2:
        raise SchemaConflict(f"{number} is odd")
    yield number // 2


def breaks(number):
    yield 1 // number


def test_an_error_ends_the_step_without_an_error_and_is_found_again(tmp_path):
    directory = str(tmp_path / "new")
    assert list(Guarded(halves, directory, instead=["nothing"])(7)) == [3, "nothing"]
    fault = recorded_fault(directory)
    assert type(fault) is SchemaConflict
    assert str(fault) == "7 is odd"


def test_an_error_nobody_meant_is_not_written_down(tmp_path):
    with pytest.raises(ZeroDivisionError):
        list(Guarded(breaks, str(tmp_path))(0))
    assert recorded_fault(str(tmp_path)) is None


@pytest.mark.parametrize("end", [stop, os.rmdir], ids=["interrupted", "removed"])
def test_steps_end_early_once_their_job_has_ended(tmp_path, end, monkeypatch):
    monkeypatch.setattr("beam_tfrecord.job_state.worker_errors._LOOK_EVERY_S", 0.0)
    directory = str(tmp_path / "job")
    step = Guarded(halves, directory)
    assert not step.is_stopped(), "a pipeline may make the directory later"
    os.mkdir(directory)
    assert not step.is_stopped()
    end(directory)
    assert step.is_stopped()


def test_after_a_fault_no_step_does_any_work(tmp_path):
    record_fault(str(tmp_path), DataError("x"))
    assert list(Guarded(breaks, str(tmp_path), instead=[5])(0)) == [5]
    assert Guarded(halves, str(tmp_path)).is_stopped()
    forget_faults(str(tmp_path))
    assert list(Guarded(halves, str(tmp_path))(8)) == [4, 4]
    assert recorded_fault(str(tmp_path)) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no space left in '/out' (no space"),
        (RuntimeError("x.pb; No space left on device [while"), "no space left in '/out' (no space"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "no space left in '/out' (disk quota"),
        (OSError(errno.EFBIG, "File too large"), "file is too large for '/out' (file too"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "cannot access '/x': perm"),
        (OSError(errno.EIO, "Input/output error"), "cannot access '/out': input/output error"),
        (
            MemoryError(),
            "out of memory while writing '/out': give the job more, or fewer --workers",
        ),
    ],
)
def test_faults_of_the_machine_are_raised_for_the_runner_in_one_line(tmp_path, error, message):
    def fail(_):
        raise error
        yield 0

    directory = tmp_path / "out" / ".tmp-1"
    directory.mkdir(parents=True)
    step = Guarded(fail, str(directory))
    with pytest.raises(StorageError) as raised:
        list(step(1))
    assert not step.is_stopped()
    assert recorded_fault(str(directory)) is None
    assert raised.value.exit_code == 1
    assert str(raised.value).startswith(message.replace("'/out", f"'{tmp_path}/out"))


def test_the_launcher_finds_the_line_in_the_traces_of_a_runner():
    traces = (
        "Error received from SDK harness for instruction 5: Traceback (most recent call last):\n"
        '  File "x.py", line 1, in f\n'
        "beam_tfrecord.errors.StorageError: no space left in '/a' (disk full): make room there\n"
        "\nDuring handling of the above exception, another exception occurred:\n\n"
        "Traceback (most recent call last):\n"
        "beam_tfrecord.errors.LeaseLost: '/b' is another job's [while running 'Spill0/ParDo']\n"
    )
    found = machine_error(RuntimeError(traces), "/out")
    assert type(found) is LeaseLost
    assert str(found) == "'/b' is another job's"


def test_memory_faults_are_known_in_whatever_beam_makes_of_them():
    wrapped = RuntimeError("_ArrayMemoryError: Unable to allocate [while running 'Spill']")
    wrapped._tagged_with_step = True
    wrapped.__context__ = MemoryError()
    refused = RuntimeError("can't start new thread")
    for error in (wrapped, refused, OSError(errno.ENOMEM, "Cannot allocate memory")):
        assert str(machine_error(error, "/out")).startswith("out of memory while writing '/out'")
    # What a function of the user's raises is no fault of the machine.
    assert machine_error(RuntimeError("its own"), "/out") is None


def test_of_several_errors_the_first_by_text_is_found(tmp_path):
    for text in ("b", "a", "c"):
        record_fault(str(tmp_path), DataError(text))
    assert str(recorded_fault(str(tmp_path))) == "a"


@pytest.mark.slow
def test_what_another_process_refused_is_not_published(tmp_path, monkeypatch):
    # Here every step looks as one in another process that has looked a moment too early.
    monkeypatch.setattr(Guarded, "is_stopped", lambda self: False)
    (tmp_path / "a.csv").write_text("x\n" + "1\n" * 50)

    def refuse(row: dict[str, int]) -> dict[str, int]:
        raise ValueError("no")

    with pytest.raises(RejectedRows, match="50"):
        bt.write(tmp_path / "a.csv", tmp_path / "out", map=refuse, max_rejects=9)
    assert not (tmp_path / "out" / "manifest.json").exists()
