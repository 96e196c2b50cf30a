"""Whatever goes wrong with a job is one line that says what to do."""

import pytest

from beam_tfrecord.errors import JobFailed, StorageError, UsageError
from beam_tfrecord.runners.failures import best_reason, error_of, failure, refusal
from beam_tfrecord.runners.launch_settings import RemoteJob
from tests.helpers.lazy import Lazy

api = Lazy("google.api_core.exceptions")
auth = Lazy("google.auth.exceptions")

JOB = RemoteJob("dataflow", "2026-1", "https://console/2026-1", lambda: None)
ATTEMPTED = "The work item was attempted on these workers: w-1, w-2"
WORKER = """Error message from worker: generic::unknown: Traceback (most recent call last):
  File "/usr/local/lib/python3.11/site-packages/rows.py", line 3, in widen
KeyError: 'width'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "apache_beam/runners/common.py", line 1498, in process
my.errors.TooWide: no width: give one [while running 'Map/MapRows-ptransform-24']

passed through:
==>
    dist_proc/dax/workflow/worker/fnapi_service_impl.cc:1338
"""
OURS = """Traceback (most recent call last):
  File "/x/beam_tfrecord/publish/last_step.py", line 99, in _publish
beam_tfrecord.errors.DataError: column 'fare' is text: pass --schema

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
RuntimeError: beam_tfrecord.errors.DataError: column 'fare' is text: pass --schema \
[while running 'Publish']
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (WORKER, "TooWide: no width: give one in step 'Map/MapRows-ptransform-24'"),
        (OURS, "column 'fare' is text: pass --schema"),
        ("\n  Startup of the worker pool failed.\nSee more.", "Startup of the worker pool failed."),
        ("", ""),
        ("x" * 500, "x" * 400 + "…"),
    ],
)
def test_the_end_of_a_traceback_is_what_counts(text, line):
    assert error_of(text) == line


@pytest.mark.parametrize(
    ("reasons", "line"),
    [
        ([], ""),
        ([ATTEMPTED, "Quota exceeded"], "Quota exceeded"),
        (["first", "second"], "second"),
        (
            [WORKER, "Workflow failed."],
            "TooWide: no width: give one in step 'Map/MapRows-ptransform-24'",
        ),
    ],
)
def test_the_reason_that_says_most_is_told(reasons, line):
    assert best_reason(reasons) == line


@pytest.mark.parametrize(
    ("state", "reasons", "line"),
    [
        ("FAILED", ["Quota exceeded"], "dataflow job 2026-1 failed: Quota exceeded: see "),
        ("FAILED", [], "dataflow job 2026-1 failed and the service does not say why: see "),
        ("CANCELLED", [], "dataflow job 2026-1 was cancelled: see "),
    ],
)
def test_an_end_is_told(state, reasons, line):
    told = failure(JOB, state, reasons)
    assert str(told).startswith(line)
    assert str(told).endswith(": see https://console/2026-1")
    assert told.exit_code == 1


@pytest.mark.parametrize(
    ("error", "kind", "line"),
    [
        (
            lambda: auth.DefaultCredentialsError("no"),
            UsageError,
            "there are no credentials for Dataflow: run ",
        ),
        (lambda: api.Forbidden("no"), UsageError, "Dataflow does not permit the job (403 no): "),
        (lambda: api.ServiceUnavailable("no"), JobFailed, "cannot reach Dataflow (503 no): try "),
        (
            lambda: ImportError("no"),
            UsageError,
            "the Dataflow runner needs an extra: pip install 'beam-tfrecord[gcp]'",
        ),
        (
            lambda: OSError("no bucket"),
            StorageError,
            "cannot stage the job (no bucket): check --temp-l",
        ),
        (lambda: ValueError("no zone"), UsageError, "Dataflow cannot run the job: no zone"),
        (lambda: KeyError("x"), JobFailed, "cannot submit the job to Dataflow: KeyError: 'x'"),
    ],
)
@pytest.mark.slow
def test_a_refusal_is_told(error, kind, line):
    told = refusal(error())
    assert type(told) is kind
    assert str(told).startswith(line)
    assert "\n" not in str(told)
