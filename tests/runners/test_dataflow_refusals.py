"""Jobs that are refused: by the service, or before it is asked; each in one line."""

import re

import pytest

from beam_tfrecord.storage import exists
from tests.helpers.cli_stand_ins import run
from tests.runners.dataflow_cloud import NOWHERE

# Clients forget connections of answers that they ask for again; the emulator closes some.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.mark.parametrize(
    ("status", "message", "line"),
    [
        (
            403,
            "no right here",
            "Dataflow does not permit the job (403 POST ENDPOINT: no right here)",
        ),
        (400, "no such zone", "Dataflow refuses the job (400 POST ENDPOINT: no such zone)"),
    ],
)
def test_a_refused_job_is_one_line(cloud, status, message, line):
    cloud.service.refusal = status, message
    ran = cloud.write("--quiet")  # a slow machine shows progress
    assert ran.exit_code == 2
    text = re.sub(r"http://localhost:\d+/\S*?(?=: )", "ENDPOINT", ran.stderr)
    assert text.startswith(f"error: {line}: check --project")
    assert text.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--", "--username", "me"), "a password given here never leaves this process"),
        (("--properties", "password=hunter2"), "property 'password' would be readable"),
    ],
)
def test_passwords_of_databases_are_refused(cloud, words, line):
    url = "postgresql://me:hunter2@db.example/shop"
    options = [word for word in words if word != "--"]
    place = ["--runner", "dataflow", *NOWHERE, "--temp-location", f"{cloud.bucket}/tmp"]
    ran = run("write", url, cloud.output, "--table", "trips", *options, *place)
    assert ran.exit_code == 2
    assert ran.stderr.startswith(f"error: {line}")
    assert "hunter2" not in ran.output


def test_a_template_is_not_waited_for(cloud):
    place = f"{cloud.bucket}/templates/trips"
    ran = cloud.write("--", f"--template_location={place}")
    assert ran.exit_code == 2
    assert ran.stderr.startswith("error: a template is written and not run: pass --template-loc")
    assert not exists(place)


def test_an_option_of_another_runner_is_told():
    ran = run("write", "gs://lake/a.csv", "gs://lake/out", *NOWHERE)
    assert ran.exit_code == 2
    assert ran.stderr.startswith("error: --project is for --runner dataflow (see ")


@pytest.mark.slow
def test_options_are_checked_before_credentials(monkeypatch):
    def ask(*_args):
        raise AssertionError("asked the store")

    monkeypatch.setattr("beam_tfrecord.storage.status", ask)
    monkeypatch.setattr("beam_tfrecord.job_state.job.exists", ask)
    paths = ("gs://lake/a.csv", "gs://lake/out", "--runner", "dataflow", "--dry-run")
    ran = run("write", *paths)
    assert ran.stderr == (
        "error: the Dataflow runner needs --project, --region and --temp-location\n"
    )


@pytest.mark.slow
def test_credentials_are_checked_before_beam_asks_for_them(monkeypatch):
    def make_pipeline(*_args):
        raise AssertionError("Beam made a pipeline")

    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/missing.json")
    monkeypatch.setattr("beam_tfrecord.runners.pipelines.LaunchedPipeline", make_pipeline)
    place = ("--runner", "dataflow", *NOWHERE, "--temp-location", "gs://lake/tmp")
    ran = run("write", "gs://lake/a.csv", "gs://lake/out", *place, "--dry-run")
    assert ran.stderr == (
        "error: GOOGLE_APPLICATION_CREDENTIALS has no credentials for gs://: File /missing.json "
        "was not found.\n"
    )


@pytest.mark.parametrize("name", ["flnk", "Direkt"])
@pytest.mark.parametrize("options", [(), ("--flink-master", "localhost:1")])
def test_a_misspelt_runner_is_told(name, options, tmp_path):
    (tmp_path / "in.csv").write_text("a\n1\n")
    ran = run("write", tmp_path / "in.csv", tmp_path / "out", "--runner", name, *options)
    assert ran.exit_code == 2
    assert ran.stderr.startswith(f"error: there is no runner {name!r}: did you mean ")
    assert not (tmp_path / "out").exists()


def test_a_job_that_needs_this_process_cannot_be_left(tmp_path):
    (tmp_path / "in.csv").write_text("a\n1\n")
    ran = run("write", tmp_path / "in.csv", tmp_path / "out", "--detach")
    assert ran.exit_code == 2
    assert ran.stderr.startswith("error: runner 'direct' stops with this process: use --runner")
