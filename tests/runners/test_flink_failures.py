"""What a runner tells of a failure, in one line."""

import contextlib
import os
import pickle

import pytest
from apache_beam.internal import pickler

from beam_tfrecord.runners import boot, boot_worker
from beam_tfrecord.runners.failures import error_of, start_fault
from beam_tfrecord.runners.flink import FlinkResult
from beam_tfrecord.runners.flink_cluster import Cluster
from beam_tfrecord.runners.launch_settings import Launch, RemoteJob

# As Flink 1.19 with Beam's runner tells of an error in a Python worker, shortened.
WORKER_ERROR = """\
java.lang.RuntimeException: Error received from SDK harness for instruction 17: \
Traceback (most recent call last):
  File "/opt/beam/lib/python3.11/site-packages/apache_beam/runners/common.py", line 1, in process
    return self.do_fn_invoker.invoke_process(windowed_value)
  File "/opt/beam/site/beam_tfrecord/exchange/pipeline.py", line 102, in <lambda>
    gathered.paths
AttributeError: 'RunSet' object has no attribute 'paths' [while running 'RunPaths']

\tat org.apache.beam.runners.fnexecution.control.FnApiControlClient.onNext(F.java:1)
"""
OWN_ERROR = """\
java.lang.RuntimeException: Error received from SDK harness for instruction 3: Traceback
  File "x.py", line 1, in process
beam_tfrecord.errors.StorageError: no space left in '/out': make room there [while running 'Spill0']
"""
NO_BUFFERS = """\
java.io.IOException: Insufficient number of network buffers: required 512, but only 468 available.
\tat org.apache.flink.runtime.io.network.buffer.NetworkBufferPool.create(NetworkBufferPool.java:1)
"""
DIED = (
    "java.lang.IllegalStateException: Process died with exit code 83\n\tat java.base/x.y(Z.java:1)"
)
NO_PROGRAM = (
    'Caused by: java.io.IOException: Cannot run program "/opt/boot": error=2, No such file or '
    "directory\n\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)"
)
JAVA = "java.lang.RuntimeException: outer\n\tat a.B(C.java:1)\nCaused by: java.io.EOFException: in"


def test_an_error_is_told_by_its_text_alone():
    step = "AttributeError: 'RunSet' object has no attribute 'paths' in step 'RunPaths'"
    assert error_of(WORKER_ERROR) == step
    assert error_of(OWN_ERROR) == "no space left in '/out': make room there"
    assert error_of(JAVA) == "EOFException: in"


def test_what_java_says_is_told_as_what_to_do():
    assert error_of(NO_BUFFERS).startswith("TaskManagers have too few network buffers: set task")
    died = "StatusRuntimeException: CANCELLED: client cancelled"
    assert error_of(died).startswith("Python workers died, perhaps out of memory")


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        (DIED, "a worker does not see the output directory '/out/p'"),
        (NO_PROGRAM, "a worker cannot run '/opt/boot' (no such file or directory)"),
    ],
)
def test_workers_that_do_not_start_say_why(trace, expected):
    fault = start_fault([WORKER_ERROR, trace], {"probe": "/out/p"})
    assert fault.startswith(expected)


def test_workers_that_start_have_no_such_fault():
    assert start_fault([WORKER_ERROR, "Process died with exit code 137"], {}) is None


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("ModuleNotFoundError: No module named 'mine'", True),
        ("OSError: [Errno 5] Input/output error", False),
    ],
)
def test_code_that_cannot_be_loaded_is_told_but_not_a_fault_of_the_machine(error, told):
    trace = f"Traceback (most recent call last):\n  x = pickler.loads(serialized_fn)\n{error}\n"
    line = start_fault([trace], {})
    assert (line is not None) == told
    assert line is None or line.startswith(f"a worker cannot load your code ({error}): install")
    assert start_fault([trace.replace("pickler.loads", "other")], {}) is None


def test_code_that_a_worker_cannot_load_reaches_the_launcher_through_a_file(tmp_path, monkeypatch):
    errors = [OSError("no disk"), ModuleNotFoundError("No module named 'mine'")]

    def loads(data):
        raise errors.pop(0)

    monkeypatch.setattr(pickler, "loads", loads)
    boot_worker.report_unloadable(str(tmp_path))
    job = RemoteJob("flink", "trips", "http://page", lambda: None)
    resources = contextlib.ExitStack()
    result = FlinkResult(None, job, Launch(directory=str(tmp_path)), Cluster("a:1"), {}, resources)
    with pytest.raises(OSError, match="no disk"):
        pickler.loads(pickle.dumps(1))
    assert result._reported_fault() is None
    with pytest.raises(ModuleNotFoundError):
        pickler.loads(pickle.dumps(1))
    assert os.listdir(tmp_path) == [boot.UNLOADABLE]
    assert str(result._reported_fault()).startswith(
        "a worker cannot load your code (ModuleNotFoundError: No module named 'mine'): install"
    )
