"""Sets up and runs Beam's Python worker, in the process that ``beam-tfrecord-boot`` starts.

The process asks the runner for the worker's settings, copies and installs the packages that were
sent for the job, then runs Beam's worker. Packages are installed once per content, however many
workers start on a machine. Only this process imports Beam, which is most of the time to start a
worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import hashlib
import importlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from beam_tfrecord.base.scratch import private_directory
from beam_tfrecord.runners.boot import (
    PACKAGE_FAILS,
    TASK,
    UNLOADABLE,
    Task,
    expected_here,
    unloadable_line,
)

CACHE = "BEAM_TFRECORD_BOOT_CACHE"

_PROVISION_S = 120
_ARTIFACT_S = 600
_PR_SET_PDEATHSIG = 1

_WHEEL, _SOURCES = ".whl", (".tar.gz", ".zip")
_UNUSED_S = 7 * 24 * 3600
# Staged files that Beam makes itself, and that are not packages.
_NOT_PACKAGES = ("submission_environment_dependencies.txt", "pickled_main_session")

# Errors of a machine: another attempt may succeed.
_TRANSIENT = (OSError, MemoryError, EOFError)


class PackageError(Exception):
    """An error: a package cannot be installed, for the reason in the text."""


def main() -> None:
    """Run a worker for the task in the environment variable `TASK`."""
    task = Task(**json.loads(os.environ.pop(TASK)))
    _end_with(task.supervisor)
    info = _provision(task)
    environment = _environment(task, info)
    os.environ.update(environment)
    with _faults_logged(environment["LOGGING_API_SERVICE_DESCRIPTOR"]):
        site = installed(_retrieve(task, info))
    if site is not None:
        _prefer(site)
    if directory := expected_here().get("directory"):
        report_unloadable(directory)
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main([sys.argv[0]])


def _end_with(supervisor: int) -> None:
    """Let Linux kill this process when the supervisor ends.

    This is safe because the supervisor starts it from its main thread, which does not end early.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        raise SystemExit(1)


def _prefer(site: str) -> None:
    """Make a directory the first that modules are imported from, also for this package's own."""
    sys.path.insert(0, site)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (site, os.environ.get("PYTHONPATH"))))
    package = __package__.partition(".")[0]
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        del sys.modules[name]
    # Python also caches that a module was not found before.
    importlib.invalidate_caches()


def _channel(url: str) -> Any:
    import grpc

    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    return grpc.insecure_channel(url, options=options)


def _provision(task: Task) -> Any:
    """Request the runner's ProvisionInfo (beam_provision_api.proto), and complete its endpoints."""
    from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc

    stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(_channel(task.provision_endpoint))
    info = stub.GetProvisionInfo(
        beam_provision_api_pb2.GetProvisionInfoRequest(),
        metadata=(("worker_id", task.id),),
        timeout=_PROVISION_S,
        wait_for_ready=True,
    ).info
    for name in ("logging", "artifact", "control"):
        endpoint = getattr(info, f"{name}_endpoint")
        endpoint.url = endpoint.url or getattr(task, f"{name}_endpoint")
    return info


def _environment(task: Task, info: Any) -> dict[str, str]:
    """Return the environment variables that Beam's worker reads."""
    from google.protobuf import json_format, text_format

    environment = {
        "WORKER_ID": task.id,
        "SEMI_PERSISTENT_DIRECTORY": task.directory,
        "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.control_endpoint),
        "LOGGING_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.logging_endpoint),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    if info.status_endpoint.url:
        status = text_format.MessageToString(info.status_endpoint)
        environment["STATUS_API_SERVICE_DESCRIPTOR"] = status
    # In a file, since Linux limits a string of the environment to 128 KiB.
    path = os.path.join(task.directory, "pipeline_options.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(json_format.MessageToJson(info.pipeline_options))
    return {**environment, "PIPELINE_OPTIONS_FILE": path}


def _retrieve(task: Task, info: Any) -> list[str]:
    """Copy the files that the runner has staged for this worker, and return their local paths."""
    if not info.dependencies or not info.artifact_endpoint.url:
        return []
    from apache_beam.portability.api import beam_artifact_api_pb2 as api
    from apache_beam.portability.api import beam_artifact_api_pb2_grpc

    staged = os.path.join(task.directory, "staged")
    stub = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(
        _channel(info.artifact_endpoint.url)
    )
    call: dict[str, Any] = {"metadata": (("worker_id", task.id),), "timeout": _ARTIFACT_S}
    request = api.ResolveArtifactsRequest(artifacts=info.dependencies)
    paths = []
    for artifact in stub.ResolveArtifacts(request, **call).replacements:
        chunks = stub.GetArtifact(api.GetArtifactRequest(artifact=artifact), **call)
        paths.append(_save(artifact, (chunk.data for chunk in chunks), staged))
    return paths


def _save(artifact: Any, chunks: Iterator[bytes], directory: str) -> str:
    name, sha256 = _name_and_hash(artifact)
    path = os.path.join(directory, name)
    if not _is_below(name):
        raise PackageError(f"staged file {name!r} lies outside of its directory")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for chunk in chunks:
            digest.update(chunk)
            file.write(chunk)
    if sha256 and sha256 != digest.hexdigest():
        raise PackageError(f"staged file {name!r} has come with other bytes")
    return path


def _is_below(name: str) -> bool:
    """Return whether a relative path cannot lead out of its directory."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts


def _name_and_hash(artifact: Any) -> tuple[str, str]:
    """Return the staged name and the SHA-256 of an ArtifactInformation; empty if it has none."""
    from apache_beam.portability import common_urns
    from apache_beam.portability.api import beam_runner_api_pb2 as api

    name = path = sha256 = ""
    if artifact.role_urn == common_urns.artifact_roles.STAGING_TO.urn:
        name = api.ArtifactStagingToRolePayload.FromString(artifact.role_payload).staged_name
    if artifact.type_urn == common_urns.artifact_types.FILE.urn:
        payload = api.ArtifactFilePayload.FromString(artifact.type_payload)
        path, sha256 = payload.path, payload.sha256
    return name or os.path.basename(path), sha256


@contextlib.contextmanager
def _faults_logged(logging_service: str) -> Iterator[None]:
    """Send an error in the block to the runner's log, since users may not see the output here."""
    try:
        yield
    except BaseException as error:
        _log(logging_service, f"worker cannot start: {error}")
        if not isinstance(error, PackageError):
            raise
        print(f"boot: {error}", file=sys.stderr, flush=True)  # noqa: T201 - as the supervisor
        raise SystemExit(PACKAGE_FAILS) from error


def _log(logging_service: str, message: str) -> None:
    from apache_beam.portability.api import endpoints_pb2
    from apache_beam.runners.worker.log_handler import FnApiLogRecordHandler
    from google.protobuf import text_format

    described = text_format.Parse(logging_service, endpoints_pb2.ApiServiceDescriptor())
    with contextlib.suppress(Exception):
        handler = FnApiLogRecordHandler(described)
        logging.getLogger().addHandler(handler)
        logging.getLogger(__name__).error(message)
        handler.close()


def report_unloadable(directory: str) -> None:
    """Make Beam in this process report code that it cannot load to the directory of the job.

    The launcher reads the report. Otherwise it would wait for minutes: the runner tries the job
    again as after any error, and may first wait for the worker.
    """
    from apache_beam.internal import pickler

    load = pickler.loads

    def loads(*args: Any, **options: Any) -> Any:
        try:
            return load(*args, **options)
        except _TRANSIENT:
            raise
        except Exception as error:
            # A failed report is no problem: the runner gets the error in any case.
            with contextlib.suppress(Exception):
                _report(directory, error)
            raise

    pickler.loads = loads


def _report(directory: str, error: Exception) -> None:
    from beam_tfrecord.errors import BeamTFRecordError
    from beam_tfrecord.storage import is_remote, put

    # If the directory is missing, the job is over.
    if is_remote(directory) or os.path.isdir(directory):
        text = " ".join(str(error).split())
        if not isinstance(error, BeamTFRecordError):
            text = f"{type(error).__name__}: {text}"
        put(os.path.join(directory, UNLOADABLE), unloadable_line(text).encode())


def installed(paths: Sequence[str], cache: str | None = None) -> str | None:
    """Install packages unless they are installed, and return their directory for `sys.path`.

    If several workers start at the same time, one installs and the others wait. Directories that no
    worker has used for a week are removed.
    """
    packages = sorted(path for path in paths if is_package(path))
    if not packages:
        return None
    root = cache or os.environ.get(CACHE) or _own_directory()
    os.makedirs(root, exist_ok=True)
    digest = hashlib.sha256(repr((sys.version, sys.platform)).encode())
    for path in packages:
        with open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").digest()
        digest.update(os.path.basename(path).encode() + content)
    site = os.path.join(root, digest.hexdigest()[:24])
    with open(f"{site}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(site):
            _install(packages, site, root)
        os.utime(site)
    _sweep(root)
    return site


def is_package(path: str) -> bool:
    """Return whether a staged file is a package, by its name."""
    name = os.path.basename(path)
    return name.endswith((_WHEEL, *_SOURCES)) and name not in _NOT_PACKAGES


def _install(packages: Sequence[str], site: str, root: str) -> None:
    made = tempfile.mkdtemp(dir=root, prefix="making-")
    try:
        for path in packages:
            _unpack_wheel(path, made)
        # Renamed when complete, since this process may be killed meanwhile.
        os.rename(made, site)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _unpack_wheel(path: str, into: str) -> None:
    """Extract a wheel as an installer does, but without scripts and headers.

    The format is the binary distribution format of PyPA's specifications.
    """
    name = os.path.basename(path)
    if not name.endswith(_WHEEL):
        raise PackageError(
            f"{name!r} is a source package: make a wheel of it (pip wheel --no-deps), and pass that"
        )
    _check_tags(name)
    with zipfile.ZipFile(path) as wheel:
        for member in wheel.namelist():
            if not _is_below(member):
                raise PackageError(f"wheel {name!r} has a file outside of itself: {member!r}")
        wheel.extractall(into)
    for data in glob.glob(f"{glob.escape(into)}/*.data"):
        for scheme in ("purelib", "platlib"):
            if os.path.isdir(os.path.join(data, scheme)):
                shutil.copytree(os.path.join(data, scheme), into, dirs_exist_ok=True)
        shutil.rmtree(data)


def _check_tags(name: str) -> None:
    from packaging.tags import sys_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        tags = parse_wheel_filename(name)[3]
    except InvalidWheelFilename as error:
        raise PackageError(f"{name!r} is not the name of a wheel: {error}") from error
    if tags.isdisjoint(sys_tags()):
        wanted = ", ".join(sorted(map(str, tags)))
        raise PackageError(f"wheel {name!r} is for {wanted}, which this machine is not")


def _own_directory() -> str:
    """Return a directory that only this user can write to, since code is imported from it."""
    path = os.path.join(tempfile.gettempdir(), f"beam-tfrecord-packages-{os.getuid()}")
    try:
        return private_directory(path)
    except OSError as error:
        raise PackageError(
            f"cannot install packages in {path!r} ({error.strerror}): set {CACHE} to another "
            "directory"
        ) from error


def _sweep(root: str) -> None:
    """Remove directories of packages that no worker has used for a week."""
    before_s = time.time() - _UNUSED_S
    for entry in os.scandir(root):
        with contextlib.suppress(OSError):
            if entry.is_dir() and entry.stat().st_mtime < before_s:
                shutil.rmtree(entry.path, ignore_errors=True)


if __name__ == "__main__":
    main()
