"""A Dataflow on loopback: takes jobs from Beam's real client, and runs them on a worker process.

It speaks the REST form of the API's jobs, messages and templates. A job that is run is
read from where its client staged it: the pipeline and the packages, out of the bucket, and nothing
else of the process that submitted it.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from beam_tfrecord.storage import read_bytes
from tests.helpers.emulators.serving import Handler, serving

ROOT = Path(__file__).parents[2]
# The API's numbers of enumerations; its client asks for numbers and sends numbers.
STATES = {
    "JOB_STATE_RUNNING": 2,
    "JOB_STATE_DONE": 3,
    "JOB_STATE_FAILED": 4,
    "JOB_STATE_CANCELLED": 5,
    "JOB_STATE_PENDING": 9,
}
ERROR = 4
TERMINAL = ("JOB_STATE_DONE", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED")


@dataclasses.dataclass
class Job:
    """A job that the service was given.

    Attributes:
        id: Of the service's making.
        description: What the client sent.
        state: By the name that the API has for it.
        errors: Messages of errors.
    """

    id: str
    description: dict[str, Any]
    state: str = "JOB_STATE_PENDING"
    errors: list[str] = dataclasses.field(default_factory=list)

    @property
    def options(self):
        """The options of the SDK, as workers get them."""
        return dict(self.description["environment"]["sdkPipelineOptions"]["options"])

    @property
    def pool(self):
        """The one pool of workers."""
        (pool,) = self.description["environment"]["workerPools"]
        return dict(pool)


class Service:
    """What the service does with jobs, and what it was asked.

    Attributes:
        jobs: By their ids, in order.
        requests: ``METHOD path`` of every request.
        refusal: Status and message to refuse jobs with.
        errors: Messages of errors that every job fails with; None: jobs are run.
        hangs: Jobs go on until they are cancelled.
        started: Set once a job is running.
    """

    def __init__(self):
        self.jobs = {}
        self.requests = []
        self.refusal = None
        self.errors = None
        self.hangs = False
        self.started = threading.Event()
        self.endpoint = ""
        self._numbers = itertools.count(1)
        self._threads = []
        self._workers = []

    @property
    def job(self):
        """The only job."""
        (job,) = self.jobs.values()
        return job

    @property
    def options(self):
        """Beam's options that lead its client here."""
        return [f"--dataflow_endpoint={self.endpoint}", "--no_auth"]

    def create(self, description):
        """Take a job, and begin with it."""
        job = Job(f"2026-11-21_loopback-{next(self._numbers)}", description)
        self.jobs[job.id] = job
        thread = threading.Thread(target=self._carry_out, args=(job,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return job

    def _carry_out(self, job):
        job.state = "JOB_STATE_RUNNING"
        self.started.set()
        if self.hangs:
            return
        if self.errors is not None:
            job.errors, job.state = self.errors, "JOB_STATE_FAILED"
            return
        with tempfile.TemporaryDirectory() as directory:
            error = self._run(job, Path(directory))
        if job.state == "JOB_STATE_RUNNING":
            job.errors = [error] if error else []
            job.state = "JOB_STATE_FAILED" if error else "JOB_STATE_DONE"

    def _run(self, job, directory):
        """Run a job as a worker does; return its error, empty where there is none."""
        for package in job.pool["packages"]:
            url = package["location"].replace("storage.googleapis.com/", "gs://")
            (directory / package["name"]).write_bytes(read_bytes(url))
        (directory / "pipeline.pb").write_bytes(read_bytes(job.options["pipelineUrl"]))
        worker = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("dataflow_worker.py")), str(directory)],
            cwd=directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
        self._workers.append(worker)
        _, told = worker.communicate()
        return told.decode() if worker.returncode else ""

    def cancel(self, job):
        """End a job."""
        if job.state not in TERMINAL:
            job.state = "JOB_STATE_CANCELLED"

    def close(self):
        """End what is still at work."""
        for worker in self._workers:
            if worker.poll() is None:
                worker.kill()
        for thread in self._threads:
            thread.join()


@contextlib.contextmanager
def dataflow_service():
    """Run a service of its own."""
    service = Service()
    try:
        with serving(_Handler, host="localhost", service=service) as port:
            # By this very name Beam's client takes it for one that is no cloud.
            service.endpoint = f"http://localhost:{port}"
            yield service
    finally:
        service.close()


class _Handler(Handler):
    service: Service

    def _serve(self):
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.service.requests.append(f"{self.command} {url.path}")
        for method, pattern, answer in _ROUTES:
            found = re.fullmatch(_BELOW + pattern, url.path)
            if self.command == method and found:
                query = {key: values[0] for key, values in parse_qs(url.query).items()}
                status, told = answer(
                    self.service, found.groupdict(), query, json.loads(body or b"{}")
                )
                break
        else:
            status, told = 404, {"error": {"code": 404, "message": f"no such method {url.path}"}}
        data = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_POST = _serve  # noqa: N815


_BELOW = r"/v1b3/projects/(?P<project>[^/]+)/locations/(?P<location>[^/]+)/"


def _told(job):
    kept = {"name", "clientRequestId"}
    return {
        **{key: value for key, value in job.description.items() if key in kept},
        "id": job.id,
        "currentState": STATES[job.state],
    }


def _create(service, ids, query, body):
    if service.refusal is not None:
        status, message = service.refusal
        return status, {"error": {"code": status, "message": message}}
    return 200, _told(service.create(body))


def _get(service, ids, query, body):
    return 200, _told(service.jobs[ids["id"]])


def _update(service, ids, query, body):
    job = service.jobs[ids["id"]]
    if body.get("requestedState") in (STATES["JOB_STATE_CANCELLED"], "JOB_STATE_CANCELLED"):
        service.cancel(job)
    return 200, _told(job)


def _messages(service, ids, query, body):
    told = [
        {
            "id": f"m{number}",
            "time": f"2026-11-21T00:00:{number:02d}Z",
            "messageText": text,
            "messageImportance": ERROR,
        }
        for number, text in enumerate(service.jobs[ids["id"]].errors)
    ]
    return 200, {"jobMessages": told}


def _launch(service, ids, query, body):
    """Run a classic template: its description is the job's, under another name."""
    description = json.loads(read_bytes(query["gcsPath"]))
    return 200, {"job": _told(service.create({**description, "name": body["jobName"]}))}


_ROUTES = [
    ("POST", r"jobs", _create),
    ("GET", r"jobs/(?P<id>[^/]+)", _get),
    ("PUT", r"jobs/(?P<id>[^/]+)", _update),
    ("GET", r"jobs/(?P<id>[^/]+)/messages", _messages),
    ("POST", r"templates:launch", _launch),
]
