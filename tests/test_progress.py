"""Progress: lines where there is no terminal, a bar where there is one."""

import io
import itertools
import threading

import pytest

from beam_tfrecord.progress import Progress, format_seconds, progress_line


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def __call__(self):
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self):
        return True


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
        "reading: 1.0 GB of 4.0 GB (25%), 100.0 MB/s, 30.0 s left",
        "merging: 1 B",
    ]


def test_the_rate_is_that_of_the_phase():
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream=stream, line_every_s=10, clock=clock)
    progress.update("reading", 7_000_000)
    clock.now_s += 10
    progress.update("merging", 0)
    clock.now_s += 10
    progress.update("merging", 20_000_000)
    assert stream.getvalue().splitlines() == ["merging: 0 B", "merging: 20.0 MB, 2.0 MB/s"]


def test_what_a_phase_begins_with_is_not_of_its_rate():
    stream, clock = io.StringIO(), Clock()
    progress = Progress(stream=stream, line_every_s=10, clock=clock)
    clock.now_s += 10
    progress.update("encoding", 34_000_000, 100_000_000)
    clock.now_s += 10
    progress.update("encoding", 54_000_000, 100_000_000)
    assert stream.getvalue().splitlines() == [
        "encoding: 34.0 MB of 100.0 MB (34%)",
        "encoding: 54.0 MB of 100.0 MB (54%), 2.0 MB/s, 23.0 s left",
    ]


def test_a_line_in_the_moment_when_a_phase_begins_has_no_rate():
    # A real clock goes on between any two looks.
    stream, ticks = io.StringIO(), itertools.count()
    progress = Progress(stream=stream, line_every_s=0, clock=lambda: next(ticks) / 1e5)
    progress.update("encoding", 34_000_000)
    assert stream.getvalue() == "encoding: 34.0 MB\n"


def test_nothing_at_all_where_it_is_not_enabled():
    for stream in (io.StringIO(), Terminal()):
        with Progress(False, stream=stream, line_every_s=0) as progress:
            progress.update("reading", 1, 2)
        assert stream.getvalue() == ""


def test_a_bar_on_a_terminal():
    stream = Terminal()
    with Progress(stream=stream) as progress:
        progress.update("reading", 500_000, 1_000_000)
        progress.update("reading", 1_000_000, 1_000_000)
        progress.update("merging", 10, None)
    text = stream.getvalue()
    assert "reading:  50%" in text
    assert "500k/1.00M" in text
    assert "merging:" in text
    # The bar goes away when it is done: what follows begins on an empty line.
    assert text.endswith("\r")


def test_updates_from_several_threads():
    stream = Terminal()
    with Progress(stream=stream) as progress:

        def work(phase):
            for done in range(50):
                progress.update(phase, done, 50)

        threads = [threading.Thread(target=work, args=(phase,)) for phase in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert "a:" in stream.getvalue()
    assert "b:" in stream.getvalue()


def test_a_line_without_what_is_not_known():
    assert progress_line("x", 0, None, 0) == "x: 0 B"
    assert progress_line("x", 10, 0, 5) == "x: 10 B, 5 B/s"
    # More was done than was expected: nothing is left, not less than nothing.
    assert progress_line("x", 20, 10, 10) == "x: 20 B of 10 B (200%), 10 B/s, 0.0 s left"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (3.24, "3.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (125, "2 min 05 s"),
        (3599.6, "1 h 00 min"),
        (7380, "2 h 03 min"),
    ],
)
def test_durations(seconds, text):
    assert format_seconds(seconds) == text
