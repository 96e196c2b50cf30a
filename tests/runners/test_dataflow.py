"""Dataflow up to the service's door: Beam's own client, and a service and a bucket on loopback."""

import json
import re
import signal
import subprocess
import sys
import time
from importlib import metadata

import pytest
from apache_beam.portability.api import beam_runner_api_pb2

from beam_tfrecord.format.job_file import load_job
from beam_tfrecord.storage import read_bytes
from tests.helpers import warm
from tests.helpers.cli_stand_ins import run
from tests.runners.dataflow_cloud import last_line, local_copy

SPLIT = ("--split", "train=0.9,test=0.1")
PAGE = "https://console.cloud.google.com/dataflow/jobs/us-central1/{}?project=my-project"
TRACEBACK = """Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 1498, in process
    return self.do_fn_invoker.invoke_process(windowed_value)
  File "/usr/local/lib/python3.11/site-packages/my_rows.py", line 3, in widen
    return row["width"] / row["height"]
ZeroDivisionError: division by zero [while running 'Map/MapRows']

worker logs: 12 lines
"""

# Clients forget connections of answers that they ask for again; the emulator closes some.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")


def pipeline_of(cloud):
    url = cloud.service.job.options["pipelineUrl"]
    return beam_runner_api_pb2.Pipeline.FromString(read_bytes(url))


def test_a_job_gives_the_bytes_of_this_machine_and_holds_no_credentials(
    cloud, tmp_path, monkeypatch
):
    for name in ("AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "GOOGLE_OAUTH_ACCESS_TOKEN"):
        monkeypatch.setenv(name, "hunter2")
    assert cloud.write("--template-location", f"{cloud.bucket}/templates/trips").exit_code == 0
    ran = cloud.write(*SPLIT)
    assert ran.exit_code == 0, ran.stderr
    assert last_line(ran).startswith("wrote 1,000 rows in 2 splits, 2 shards (")
    assert run("write", local_copy(tmp_path), tmp_path / "out", *SPLIT).exit_code == 0
    out = tmp_path / "out"
    files = {str(path.relative_to(out)) for path in out.rglob("[!.]*") if path.is_file()}
    assert cloud.names("out") == files  # Nothing temporary is left.
    for name in files - {"job.json"}:
        assert read_bytes(f"{cloud.output}/{name}") == (out / name).read_bytes()
    job = load_job(read_bytes(f"{cloud.output}/job.json").decode())
    assert job["runner"] == "dataflow"
    assert job["job"] == {"id": cloud.service.job.id, "name": cloud.service.job.description["name"]}
    assert {job["beam"], job["python"]} == {metadata.version("apache-beam"), sys.version.split()[0]}
    assert (
        cloud.write(*SPLIT).stderr == f"{cloud.output} already holds this dataset: nothing to do\n"
    )
    assert len(cloud.service.jobs) == 1
    # The graphs of both, the template and job.json are among them.
    texts = [*cloud.texts(), json.dumps(cloud.service.job.description).encode()]
    assert sum(b"sdkPipelineOptions" in text for text in texts) == 2
    assert sum(b"ReadTask" in text for text in texts) == 2
    assert not any(b"hunter2" in text for text in (*texts, ran.output.encode()))


def test_options_reach_the_job(cloud):
    cloud.service.hangs = True
    ran = cloud.write(
        *("--detach", "--job-name", "trips", "--worker-image", "gcr.io/my/image:1"),
        *("--machine-type", "n2-highmem-8", "--max-workers", "7", "--worker-wheel", "none"),
        *("--", "--subnetwork=regions/us-central1/subnetworks/inner", "--no_use_public_ips"),
    )
    assert ran.exit_code == 0, ran.stderr
    job = cloud.service.job
    assert job.description["name"] == "trips"
    assert job.pool["machineType"] == "n2-highmem-8"
    assert job.pool["autoscalingSettings"] == {"maxNumWorkers": 7}
    assert job.pool["workerHarnessContainerImage"] == "gcr.io/my/image:1"
    assert job.pool["subnetwork"] == "regions/us-central1/subnetworks/inner"
    assert job.pool["ipConfiguration"] == 2  # WORKER_IP_PRIVATE
    assert job.pool.get("packages", []) == []
    (environment,) = pipeline_of(cloud).components.environments.values()
    docker = beam_runner_api_pb2.DockerPayload.FromString(environment.payload)
    assert docker.container_image == "gcr.io/my/image:1"


def test_modules_of_a_map_function_are_staged(cloud, tmp_path, monkeypatch):
    # The worker finds neither of them where it runs, but in what was staged.
    (tmp_path / "dataflow_neighbour.py").write_text("FACTOR = 2\n")
    (tmp_path / "dataflow_rows.py").write_text(
        "from dataflow_neighbour import FACTOR\n\n\n"
        "def double(row):\n    return {'id': row['id'], 'fare': row['fare'] * FACTOR}\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    ran = cloud.write("--map", "dataflow_rows:double")
    assert ran.exit_code == 0, ran.stderr
    packages = [package["name"].partition("-")[0] for package in cloud.service.job.pool["packages"]]
    assert sorted(packages) == [
        "beam_tfrecord",
        "dataflow_neighbour",
        "dataflow_rows",
        "extra_packages.txt",
    ]
    rows = [json.loads(line) for line in run("head", cloud.output, "--json").stdout.splitlines()]
    assert rows
    assert all(row["fare"] == row["id"] / 4 for row in rows)


def test_a_fault_of_the_data_is_told_as_on_this_machine(cloud, tmp_path):
    function = tmp_path / "rows.py"
    function.write_text("def widen(row):\n    return {'wide': 1 / (row['id'] - 1007)}\n")
    ran = cloud.write("--map", f"{function}:widen")
    here = run("write", local_copy(tmp_path), tmp_path / "out", "--map", f"{function}:widen")
    assert (ran.exit_code, here.exit_code) == (1, 1)
    assert cloud.service.job.state == "JOB_STATE_DONE"
    line = last_line(here).replace(str(tmp_path / "out"), cloud.output)
    assert re.sub(r"\.tmp-\w+", "TMP", last_line(ran)) == re.sub(r"\.tmp-\w+", "TMP", line)
    assert "ZeroDivisionError: division by zero" in ran.stderr
    assert "manifest.json" not in cloud.names("out")


def test_a_failed_job_is_one_line(cloud):
    cloud.service.errors = [
        TRACEBACK,
        "Workflow failed. Causes: S05:Map failed., The job failed because a work item has failed 4 "
        "times. The work item was attempted on these workers: \n  trips-1",
    ]
    ran = cloud.write()
    assert ran.exit_code == 1
    id_ = cloud.service.job.id
    assert ran.stderr == (
        f"error: dataflow job {id_} failed: ZeroDivisionError: division by zero in step "
        f"'Map/MapRows': see {PAGE.format(id_)}; nothing was published, and no part of the input "
        "was done yet\n"
    )


def test_a_job_that_is_cancelled_elsewhere_is_one_line(cloud):
    cloud.service.hangs = True
    service = cloud.service
    began = service._carry_out

    def cancelled(job):
        began(job)
        service.cancel(job)

    service._carry_out = cancelled
    ran = cloud.write()
    assert ran.exit_code == 1
    assert ran.stderr.startswith(
        f"error: dataflow job {service.job.id} was cancelled: see {PAGE.format(service.job.id)}; "
    )


def test_an_interrupt_cancels_the_job(cloud):
    cloud.service.hangs = True
    command = [*warm.program(), "-m", "beam_tfrecord", *cloud.words()]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert cloud.service.started.wait(60)
        # Once it is asked for its state, the client knows its id.
        while not any(one.startswith("GET") for one in cloud.service.requests):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, line = process.communicate(timeout=60)
    assert process.returncode == 130
    id_ = cloud.service.job.id
    assert line.endswith(
        f"error: interrupted: dataflow job {id_} is cancelled; nothing was published, and no part "
        "of the input was done yet\n"
    )
    assert "Traceback" not in line
    assert cloud.service.job.state == "JOB_STATE_CANCELLED"


def test_a_dry_run_touches_nothing(cloud):
    before = cloud.names("in")
    ran = cloud.write("--dry-run", "--verbose", "--max-workers", "3", *SPLIT)
    assert ran.exit_code == 0, ran.stderr
    assert cloud.service.requests == []
    assert before == {"trips-1.csv", "trips-2.csv"}
    assert [cloud.names(name) for name in ("out", "tmp")] == [set(), set()]
    assert ran.stdout.startswith("input: csv, 2 files, ")
    found = json.loads(ran.stdout[ran.stdout.index("{") :])
    assert found["workers"].items() >= {"machine": "n2-standard-4", "most_allowed": 3}.items()
    assert {"CutFiles", "ReadTask"} <= set(found["graph"]["Read"])
    assert found["job"]["packages"][0].startswith("beam_tfrecord-")
