"""How much a command says, and where: --quiet, --verbose, --debug and --log-file."""

import logging
import os
import warnings

import pytest
from click.testing import CliRunner

from beam_tfrecord.cli.main import cli
from beam_tfrecord.errors import UsageError
from beam_tfrecord.jobs import api
from tests.helpers.cli_stand_ins import FakeJob, run

PACKAGE = logging.getLogger("beam_tfrecord.jobs.api")
LIBRARY = logging.getLogger("a_library")


@pytest.fixture
def talking_job(monkeypatch, tmp_path):
    """A job that logs on every level, as does a library that it uses."""
    job = FakeJob(monkeypatch)

    def write(inputs, output, progress, **kwargs):
        for logger in (PACKAGE, LIBRARY):
            logger.info("%s informs", logger.name)
            logger.warning("%s warns", logger.name)
        PACKAGE.debug("decided something")
        progress.update("reading", 1)
        # The display is closed at the end of the command.
        job.shows_progress = progress._enabled
        if job.error is not None:
            raise job.error
        return job.result

    monkeypatch.setattr(api, "write", write)
    monkeypatch.setattr("beam_tfrecord.check.show.show", lambda path: {})
    monkeypatch.setattr("beam_tfrecord.check.show.render_show", lambda shown: "a table\n")
    monkeypatch.chdir(tmp_path)
    return job


WARNING = "warning: beam_tfrecord.jobs.api warns"


def said(*words):
    ran = run("write", "a.csv", "out", *words)
    assert ran.stdout == ""
    return ran.stderr.splitlines()


def test_by_default_the_summary_and_then_the_warnings(talking_job):
    wrote, *rest = said()
    assert wrote.startswith("wrote 1,000 rows")
    assert rest == [WARNING]


def test_quiet_shows_errors_alone(talking_job):
    assert said("--quiet") == []
    talking_job.error = UsageError("no such column")
    assert said("--quiet") == ["error: no such column"]
    assert said("--verbose", "--quiet") == ["error: no such column"]


def test_quiet_shows_no_progress(talking_job):
    for words, is_shown in [((), True), (("--quiet",), False)]:
        said(*words)
        assert talking_job.shows_progress is is_shown


def test_verbose_adds_what_was_decided(talking_job):
    *details, wrote, warning = said("--verbose")
    assert details[:2] == ["beam_tfrecord.jobs.api informs", "decided something"]
    assert details[2:] == ["a table"]
    assert (wrote[:5], warning) == ("wrote", WARNING)


def test_debug_shows_the_log_of_libraries_with_times(talking_job):
    talking_job.error = RuntimeError("lost")
    lines = said("--debug")
    for line in ("DEBUG beam_tfrecord.jobs.api: decided something", "INFO a_library: a_library in"):
        assert any(line in one for one in lines)
    assert any("ERROR" in one and "unexpected RuntimeError: lost" in one for one in lines)
    assert "Traceback (most recent call last):" in lines
    assert lines[-1] == "RuntimeError: lost"


@pytest.mark.parametrize("volume", ["--quiet", "--verbose", "--debug"])
def test_the_log_file_has_it_all_whatever_the_terminal_shows(talking_job, volume, tmp_path):
    talking_job.error = RuntimeError("lost")
    for _ in range(2):
        said("--log-file", "job.log", volume)
    log = (tmp_path / "job.log").read_text()
    for line in (
        "DEBUG beam_tfrecord.jobs.api: decided something",
        "INFO a_library: a_library informs",
        "WARNING a_library: a_library warns",
        "ERROR beam_tfrecord.cli.log: unexpected RuntimeError: lost",
        "RuntimeError: lost\n",
    ):
        assert log.count(line) == 2, line


def test_a_log_file_that_cannot_be_written_is_one_line(talking_job):
    assert said("--log-file", "nowhere/job.log") == [
        f"error: cannot access {os.path.abspath('nowhere/job.log')!r}: no such file or directory: "
        "check the path and its permissions"
    ]


def test_a_command_leaves_logging_as_it_was(talking_job):
    root = logging.getLogger()
    before = root.level, root.handlers[:], PACKAGE.parent.level, warnings.showwarning
    for words in ((), ("--debug",), ("--log-file", "x.log"), ("--quiet",)):
        said(*words)
    assert before == (root.level, root.handlers, PACKAGE.parent.level, warnings.showwarning)


def test_results_are_on_stdout_also_if_quiet(monkeypatch):
    job = FakeJob(monkeypatch)
    job.result = {"rows": 1}
    ran = run("plan", "a.csv", "out", "--quiet", "--json")
    assert (ran.stdout, ran.stderr) == ('{\n  "rows": 1\n}\n', "")


def test_warnings_come_before_an_error_and_once(talking_job):
    talking_job.error = UsageError("no such column")
    assert said() == [WARNING, "error: no such column"]


@pytest.mark.parametrize(("no_color", "shown"), [("", "\x1b[31merror:\x1b[0m"), ("1", "error:")])
def test_errors_are_red_on_a_terminal_unless_no_color_is_set(monkeypatch, no_color, shown):
    monkeypatch.setenv("NO_COLOR", no_color)
    ran = CliRunner().invoke(cli, ["head", "nowhere"], color=True)
    assert ran.stderr.startswith(f"{shown} cannot read 'nowhere'")
