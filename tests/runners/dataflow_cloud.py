"""What the tests of Dataflow share: a bucket and a service on loopback, and a command on them."""

import contextlib
import dataclasses
import itertools
import os

import pytest

from beam_tfrecord.storage import gcs, list_files, put, read_bytes
from tests.helpers.cli_stand_ins import run
from tests.helpers.emulators.servers import google_emulator, google_server
from tests.runners.dataflow_service import Service, dataflow_service

_NUMBERS = itertools.count(1)
ROWS = 500
NOWHERE = ("--project", "my-project", "--region", "us-central1")


def trips(first, rows=ROWS):
    """Return a CSV file of trips."""
    lines = [f"{i},{i / 8},{'abc'[i % 3]}" for i in range(first, first + rows)]
    return "\n".join(["id,fare,city", *lines, ""]).encode()


@dataclasses.dataclass(frozen=True)
class Cloud:
    """A bucket with two files of trips, and a service.

    Attributes:
        bucket: URL of the bucket.
        service: The service.
    """

    bucket: str
    service: Service

    @property
    def input(self):
        """Pattern of the files of trips."""
        return f"{self.bucket}/in/trips-*.csv"

    @property
    def output(self):
        """Directory of the dataset."""
        return f"{self.bucket}/out"

    def words(self, *options):
        """Return the words of a command that writes the trips on the service."""
        place = ["--runner", "dataflow", *NOWHERE, "--temp-location", f"{self.bucket}/tmp"]
        given = ["write", self.input, self.output, *place, *options]
        separator = [] if "--" in options else ["--"]
        return [*given, *separator, *self.service.options]

    def write(self, *options):
        """Write the trips on the service."""
        return run(*self.words(*options))

    def names(self, directory):
        """Return the names below a directory of the bucket."""
        below = f"{self.bucket}/{directory}/"
        return {entry.path.removeprefix(below) for entry in list_files(below.rstrip("/"))}

    def texts(self):
        """Yield all that is in the bucket but the input and the packages."""
        for entry in list_files(self.bucket):
            if "/in/" not in entry.path and not entry.path.endswith(".whl"):
                yield read_bytes(entry.path)


@contextlib.contextmanager
def cloud_of(endpoint):
    """Give a new bucket and a new service.

    Args:
        endpoint: Of the emulated storage.
    """
    bucket = f"lake-{next(_NUMBERS)}"
    with pytest.MonkeyPatch.context() as patch, dataflow_service() as service:
        patch.setenv("STORAGE_EMULATOR_HOST", endpoint)
        gcs.client().create_bucket(bucket)
        for number in (1, 2):
            put(f"gs://{bucket}/in/trips-{number}.csv", trips(number * 1000))
        yield Cloud(f"gs://{bucket}", service)


@contextlib.contextmanager
def emulated_storage():
    """Run the emulated storage; give its endpoint."""
    pytest.importorskip("google.cloud.dataflow")
    if google_emulator() is None:
        pytest.skip("fake-gcs-server is not installed")
    with google_server() as endpoint:
        yield endpoint
        gcs._client_of.cache_clear()


def last_line(ran):
    """Return the last line on stderr: where all is slow, progress is told before it."""
    return str(ran.stderr.splitlines()[-1])


def local_copy(directory):
    """Write the same trips on this machine; return their pattern."""
    (directory / "in").mkdir()
    for number in (1, 2):
        (directory / "in" / f"trips-{number}.csv").write_bytes(trips(number * 1000))
    return os.fspath(directory / "in" / "trips-*.csv")
