"""Jobs that are left to Dataflow: detached ones and templates."""

import json
import urllib.error
import urllib.request

import pytest

from beam_tfrecord.format.manifest import Manifest
from beam_tfrecord.storage import put, read_bytes
from tests.helpers.cli_stand_ins import run
from tests.runners.dataflow_cloud import last_line, local_copy, trips

SPLIT = ("--split", "train=0.9,test=0.1")

# Clients forget connections of answers that they ask for again; the emulator closes some.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """The dataset that this machine makes of the same trips."""
    directory = tmp_path_factory.mktemp("here")
    assert run("write", local_copy(directory), directory / "out", *SPLIT).exit_code == 0
    return directory / "out"


def ask(cloud, path, body):
    """Ask the service for something as ``gcloud`` does."""
    url = f"{cloud.service.endpoint}/v1b3/projects/my-project/locations/us-central1/{path}"
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request) as answer:
        return dict(json.load(answer))


def ended(cloud):
    """Wait for all jobs; return their states."""
    for thread in cloud.service._threads:
        thread.join()
    return [job.state for job in cloud.service.jobs.values()]


def test_a_detached_job_ends_by_itself(cloud, here):
    ran = cloud.write("--detach", *SPLIT)
    job = cloud.service.job
    assert (ran.exit_code, ran.stdout) == (0, f"{job.id}\n")
    assert ran.stderr == (
        f"started dataflow job {job.id}: see https://console.cloud.google.com/dataflow/jobs/"
        f"us-central1/{job.id}?project=my-project\n"
    )
    assert ended(cloud) == ["JOB_STATE_DONE"]
    assert cloud.names("out") == {
        str(path.relative_to(here)) for path in here.rglob("[!.]*") if path.is_file()
    }
    # Whoever waits and whoever does not get the same.
    assert read_bytes(f"{cloud.output}/manifest.json") == (here / "manifest.json").read_bytes()


def test_a_classic_template_runs_again_and_again(cloud, here):
    place = f"{cloud.bucket}/templates/trips"
    ran = cloud.write("--template-location", place, "--overwrite", *SPLIT)
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert ran.stderr == f"wrote the template {place}: each run of it writes {cloud.output}\n"
    assert cloud.service.requests == []
    assert cloud.names("out") == set()

    ask(cloud, f"templates:launch?gcsPath={place}", {"jobName": "first"})
    assert ended(cloud) == ["JOB_STATE_DONE"]
    first = Manifest.load(f"{cloud.output}/manifest.json")
    expected = Manifest.load(str(here / "manifest.json"))
    assert (first.content, first.splits) == (expected.content, expected.splits)
    # What a template was made from says nothing of what its runs read.
    assert (first.fingerprint, first.source) == ("", None)

    put(f"{cloud.bucket}/in/trips-3.csv", trips(3000, 70))
    ask(cloud, f"templates:launch?gcsPath={place}", {"jobName": "second"})
    assert ended(cloud) == ["JOB_STATE_DONE", "JOB_STATE_DONE"]
    assert Manifest.load(f"{cloud.output}/manifest.json").examples == first.examples + 70
    assert not any(name.startswith(".") for name in cloud.names("out"))


def test_a_stage_is_extracted_there_too(cloud):
    words = [word for word in cloud.words() if word != cloud.output]
    stage = f"{cloud.bucket}/stage"
    ran = run("extract", words[1], stage, *words[2:])
    assert ran.exit_code == 0, ran.stderr
    assert last_line(ran).startswith("extracted 1,000 rows to ")
    assert run("verify", stage).exit_code == 0
