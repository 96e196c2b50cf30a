"""Every job on every runner: the same files, rejects, exit code and error line."""

import dataclasses

import pytest

import beam_tfrecord as bt
from tests.helpers.marks import needs
from tests.runners.conformance import (
    JOBS,
    TRANSFORM_JOBS,
    make_inputs,
    make_transform_inputs,
    prism,
    result_of,
    small_tasks,
)

PROCESSES = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
THREADS = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to run a job.

    Attributes:
        runner: Name of the runner.
        beam: Beam's options.
    """

    runner: str
    beam: tuple[str, ...] = ()


ONE = Way("FnApiRunner")
WAYS = {
    "two threads": Way("direct", THREADS),
    "portable": Way("portable"),
    "two workers": Way("direct", ("--direct_num_workers=2",)),
    "two processes": Way("direct", PROCESSES),
    "external workers": Way("portable", ("--job_endpoint=embed", "--environment_type=EXTERNAL")),
    "prism": Way("prism"),
    "flink": Way("flink"),
}
# Each of these starts processes of its own for every job.
SLOW = ("two workers", "two processes", "external workers", "prism")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    return make_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def transform_inputs(tmp_path_factory):
    pytest.importorskip("tensorflow_transform")
    return make_transform_inputs(tmp_path_factory.mktemp("transform-inputs"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return what a job gives on one worker, run once."""
    known = {}

    def of(name, job):
        if name not in known:
            output = tmp_path_factory.mktemp("expected") / "out"
            known[name] = result_of(job, output, ONE.runner, beam=ONE.beam)
            check_known(known[name], job, output)
        return known[name]

    return of


@pytest.fixture
def started(request):
    """Return a way with all its options, once what it needs is there."""

    def of(name):
        way, more = WAYS[name], []
        if name == "external workers":
            more = [f"--environment_config={request.getfixturevalue('worker_pool')[0]}"]
        elif name == "prism":
            more = [f"--prism_location={prism()}"]
        elif name == "flink":
            more = request.getfixturevalue("cluster").options
        return dataclasses.replace(way, beam=(*way.beam, *more))

    return of


def check_known(result, job, output):
    """Hold a result to what is known of the job without running it."""
    assert result.exit_code == job.exit_code, result.lines
    if job.examples is None:
        assert not result.files
        assert len([line for line in result.lines if line.startswith("error: ")]) == 1
        return
    manifest = bt.Manifest.load(output)
    found = {name: split.examples for name, split in manifest.splits.items()}
    assert found == job.examples
    assert manifest.rejects["rows"] == job.rejects


def marks_of(way):
    if way == "flink":
        return needs("flink")
    return [pytest.mark.slow] if way in SLOW else []


WAYS_MARKED = [pytest.param(way, marks=marks_of(way)) for way in WAYS]


def check_same(way, job, output, expected, started):
    ready, known = started(way), expected(job, (JOBS | TRANSFORM_JOBS)[job])
    found = result_of((JOBS | TRANSFORM_JOBS)[job], output, ready.runner, beam=ready.beam)
    assert found == known


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("way", WAYS_MARKED)
def test_job_comes_out_the_same(way, job, inputs, tmp_path, expected, started, monkeypatch):
    monkeypatch.chdir(inputs)
    small_tasks(monkeypatch)
    check_same(way, job, tmp_path / "out", expected, started)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("job", TRANSFORM_JOBS)
@pytest.mark.parametrize("way", WAYS_MARKED)
def test_preprocessing_comes_out_the_same(
    way, job, transform_inputs, tmp_path, expected, started, monkeypatch
):
    monkeypatch.chdir(transform_inputs)
    check_same(way, job, tmp_path / "out", expected, started)
