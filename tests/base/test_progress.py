"""Progress: a bar on a terminal, lines where there is none."""

import errno
import io
import logging
import threading

import pytest

from beam_tfrecord.base.progress import Progress, adder


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self):
        return True


class NotebookStream(io.StringIO):
    """Like the stderr of ipykernel: no terminal, and no file."""

    def fileno(self):
        raise io.UnsupportedOperation("fileno")


def lines_of(*reports, every_s=10, rejects=0, unit="row"):
    """Return the lines for reports (phase, done, total), one every `every_s` seconds."""
    stream, clock = NotebookStream(), Clock()
    progress = Progress(stream=stream, line_every_s=every_s, clock=clock)
    for report in reports:
        clock.now_s += every_s
        progress.update(*report, unit=unit, rejects=rejects)
    return stream.getvalue().splitlines()


def test_lines_come_now_and_then():
    stream, clock = io.StringIO(), Clock()
    with Progress(stream=stream, line_every_s=10, clock=clock) as progress:
        progress.update("reading", 0, 4_000_000_000)
        clock.now_s += 9
        progress.update("reading", 900_000_000, 4_000_000_000)
        assert stream.getvalue() == ""
        clock.now_s += 1
        progress.update("reading", 1_000_000_000, 4_000_000_000)
        clock.now_s += 1
        progress.update("reading", 1_100_000_000, 4_000_000_000)
        clock.now_s += 9
        progress.update("merging", 1, None)
    assert stream.getvalue().splitlines() == [
        "reading:  25%|##5       | 1.00G/4.00G [00:10<00:30, 100MB/s]",
        "merging: 1.00B [00:00, ?B/s]",
    ]


def test_counts_of_rows_and_rejects():
    assert lines_of(
        ("reading", 0, 2_700_000),
        ("reading", 1_200_000, 2_700_000),
        ("writing", 1, 1),
        ("writing", 1, 2),
        ("writing", 12_345, None),
    ) == [
        "reading:   0%|          | 0.00/2.70M [00:00<?, ?row/s]",
        "reading:  44%|####4     | 1.20M/2.70M [00:10<00:12, 120krow/s]",
        "writing: 100%|##########| 1/1 [00:00<?, ?row/s]",
        "writing:  50%|#####     | 1/2 [00:10<?, ?row/s]",
        "writing: 12345row [00:20, 617.20row/s]",
    ]
    (line,) = lines_of(("reading", 1, 2), rejects=1)
    assert line == "reading:  50%|#####     | 1/2 [00:00<?, ?row/s, 1 reject]"
    (line,) = lines_of(("reading", 1), rejects=1_352)
    assert line == "reading: 1row [00:00, ?row/s, 1,352 rejects]"
    assert lines_of(("starting", 0), ("starting", 0)) == ["starting: 00:00", "starting: 00:10"]


def test_what_a_phase_begins_with_is_not_of_its_rate():
    reports = ("reading", 34_000_000, 100_000_000), ("reading", 54_000_000, 100_000_000)
    assert lines_of(*reports, unit="B") == [
        "reading:  34%|###4      | 34.0M/100M [00:00<?, ?B/s]",
        "reading:  54%|#####4    | 54.0M/100M [00:10<00:23, 2.00MB/s]",
    ]


def test_nothing_at_all_if_it_is_not_enabled():
    for stream in (io.StringIO(), Terminal()):
        clock = Clock()
        with Progress(False, stream=stream, line_every_s=0, clock=clock) as progress:
            clock.now_s += 100
            progress.update("reading", 1, 2)
            progress.say("a line")
        assert stream.getvalue() == ""


def test_a_bar_on_a_terminal():
    stream, clock = Terminal(), Clock()
    with Progress(stream=stream, clock=clock) as progress:
        progress.update("starting", 0)
        assert stream.getvalue() == "", "a short command shows no bar"
        clock.now_s += 1
        progress.update("reading", 500_000, 1_000_000, unit="row", rejects=2)
        drawn = stream.getvalue()
        assert drawn.startswith("\rreading:  50%|##")
        assert drawn.endswith("| 500k/1.00M [00:00<?, ?row/s, 2 rejects]")
        progress.update("reading", 600_000, 1_000_000, unit="row")
        assert stream.getvalue() == drawn, "drawn only now and then"
        clock.now_s += 1
        progress.update("merging", 10, None)
    # The bar goes away when it is done: what follows begins on an empty line.
    line = "merging: 10.0B [00:00, ?B/s]"
    assert stream.getvalue().endswith(f"\r{line.ljust(79)}\r{' ' * len(line)}\r")


def test_a_line_is_never_glued_to_the_bar():
    stream, clock = Terminal(), Clock()
    progress = Progress(stream=stream, clock=clock)
    progress.say("first")
    clock.now_s += 1
    progress.update("reading", 1, 2)
    progress.say("2 of 4 slots")
    clock.now_s += 1
    progress.update("reading", 1, 2)
    progress.close()
    first, second, third = stream.getvalue().split("\n")
    assert first == "first"
    assert second.startswith("\rreading:  50%")
    assert second.endswith("\r" + " " * 79 + "\r2 of 4 slots")
    assert third.startswith("\rreading:  50%")


@pytest.mark.parametrize(
    ("kind", "level", "shown"),
    [
        ("stderr", logging.DEBUG, "reading:  50%|#####     | 1.00/2.00 [00:00<?, ?B/s]\n"),
        ("file", logging.DEBUG, "\rreading:  50%|"),
        ("stderr", logging.WARNING, "\rreading:  50%|"),
    ],
)
def test_a_log_on_the_terminal_gets_lines_instead_of_a_bar(
    kind, level, shown, tmp_path, monkeypatch
):
    handler = logging.FileHandler(tmp_path / "log") if kind == "file" else logging.StreamHandler()
    monkeypatch.setattr(logging.getLogger(), "handlers", [handler])
    logger, before = logging.getLogger("beam_tfrecord"), logging.getLogger("beam_tfrecord").level
    logger.setLevel(level)
    try:
        stream, clock = Terminal(), Clock()
        with Progress(stream=stream, line_every_s=0, clock=clock) as progress:
            clock.now_s += 1
            progress.update("reading", 1, 2)
    finally:
        logger.setLevel(before)
        handler.close()
    assert stream.getvalue().startswith(shown)


def test_a_stream_that_fails_does_not_end_the_job():
    class Full(Terminal):
        def write(self, text):
            raise OSError(errno.ENOSPC, "full")

    for stream in (Full(), NotebookStream()):
        clock = Clock()
        with Progress(stream=stream, clock=clock) as progress:
            clock.now_s += 20
            progress.update("reading", 1, 2)
            progress.say("a line")


def test_updates_from_several_threads():
    stream = io.StringIO()
    with Progress(stream=stream, line_every_s=0) as progress:
        add = adder(progress, "verifying", 400)

        def work():
            for _ in range(50):
                add(2)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert "verifying: 100%|##########| 400/400 [" in stream.getvalue()
