"""The worker that ``beam-tfrecord-boot`` starts: asks the runner what to do, and becomes Beam's.

Beam is imported once, in the process that goes on to do the work: its import is most of what it
takes to start a worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import importlib
import importlib.util
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NoReturn

from beam_tfrecord.private import private_directory
from beam_tfrecord.runners.boot import PACKAGE_FAILS, TASK, Task, expected_here

_PROVISION_S = 120
_ARTIFACT_S = 600
# One string of an environment may hold 128 KiB on Linux, and children of the worker inherit it.
_MOST_OPTION_CHARACTERS = 100_000
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the worker of the task in the environment."""
    task = Task(**json.loads(os.environ.pop(TASK)))
    _end_with(task.supervisor)
    info = _provision(task)
    environment = _environment(task, info)
    os.environ.update(environment)
    with _faults_logged(environment["LOGGING_API_SERVICE_DESCRIPTOR"]):
        staged = _retrieve(task, info)
        site = installed(staged)
    if site is not None:
        _prefer(site)
    if directory := expected_here().get("directory"):
        tell_of_unloadable(directory)
    from apache_beam.runners.worker import sdk_worker_main

    sdk_worker_main.main([sys.argv[0]])


def _end_with(supervisor: int) -> None:
    """Have this process killed when the supervisor ends; that one has a single thread to fork."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        raise SystemExit(1)


def _prefer(site: str) -> None:
    """Have modules come from packages that were sent, this one's too, before those of this host."""
    sys.path.insert(0, site)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (site, os.environ.get("PYTHONPATH"))))
    package = __package__.partition(".")[0]
    for name in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        del sys.modules[name]
    # What could not be found before is remembered too.
    importlib.invalidate_caches()


def _channel(url: str) -> Any:
    import grpc

    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    return grpc.insecure_channel(url, options=options)


def _provision(task: Task) -> Any:
    """Return the runner's ProvisionInfo (beam_provision_api.proto), endpoints filled in."""
    from apache_beam.portability.api import beam_provision_api_pb2, beam_provision_api_pb2_grpc

    stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(_channel(task.provision_endpoint))
    info = stub.GetProvisionInfo(
        beam_provision_api_pb2.GetProvisionInfoRequest(),
        metadata=_identity(task),
        timeout=_PROVISION_S,
        wait_for_ready=True,
    ).info
    for name in ("logging", "artifact", "control"):
        endpoint = getattr(info, f"{name}_endpoint")
        endpoint.url = endpoint.url or getattr(task, f"{name}_endpoint")
    return info


def _identity(task: Task) -> tuple[tuple[str, str], ...]:
    return (("worker_id", task.id),)


def _environment(task: Task, info: Any) -> dict[str, str]:
    """Return what Beam's worker reads from its environment."""
    from google.protobuf import json_format, text_format

    def described(endpoint: Any) -> str:
        return str(text_format.MessageToString(endpoint))

    environment = {
        "WORKER_ID": task.id,
        "SEMI_PERSISTENT_DIRECTORY": task.directory,
        "CONTROL_API_SERVICE_DESCRIPTOR": described(info.control_endpoint),
        "LOGGING_API_SERVICE_DESCRIPTOR": described(info.logging_endpoint),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
    }
    if info.status_endpoint.url:
        environment["STATUS_API_SERVICE_DESCRIPTOR"] = described(info.status_endpoint)
    options = json_format.MessageToJson(info.pipeline_options)
    if len(options) <= _MOST_OPTION_CHARACTERS:
        return {**environment, "PIPELINE_OPTIONS": options}
    path = os.path.join(task.directory, "pipeline_options.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write(options)
    return {**environment, "PIPELINE_OPTIONS_FILE": path}


def _retrieve(task: Task, info: Any) -> list[str]:
    """Copy what the runner has staged for this worker; return the paths."""
    staged = os.path.join(task.directory, "staged")
    os.makedirs(staged, exist_ok=True)
    if not info.dependencies or not info.artifact_endpoint.url:
        return []
    from apache_beam.portability.api import beam_artifact_api_pb2 as api
    from apache_beam.portability.api import beam_artifact_api_pb2_grpc

    stub = beam_artifact_api_pb2_grpc.ArtifactRetrievalServiceStub(
        _channel(info.artifact_endpoint.url)
    )
    artifacts = stub.ResolveArtifacts(
        api.ResolveArtifactsRequest(artifacts=info.dependencies),
        metadata=_identity(task),
        timeout=_ARTIFACT_S,
    ).replacements
    paths = []
    for artifact in artifacts:
        chunks = stub.GetArtifact(
            api.GetArtifactRequest(artifact=artifact), metadata=_identity(task), timeout=_ARTIFACT_S
        )
        paths.append(_save(artifact, (chunk.data for chunk in chunks), staged))
    return paths


def _save(artifact: Any, chunks: Iterator[bytes], directory: str) -> str:
    name, sha256 = _name_and_hash(artifact)
    # A name says where below the directory a file goes, and never above it.
    path = os.path.normpath(os.path.join(directory, name))
    if not path.startswith(directory + os.sep):
        raise PackageFault(f"staged file {name!r} lies outside of its directory")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for chunk in chunks:
            digest.update(chunk)
            file.write(chunk)
    if sha256 and sha256 != digest.hexdigest():
        raise PackageFault(f"staged file {name!r} has come with other bytes")
    return path


def _name_and_hash(artifact: Any) -> tuple[str, str]:
    """Return the staged name and the SHA-256 of an ArtifactInformation, empty where not told."""
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
    """Tell the runner's log of a worker that cannot start; its own output may be seen by nobody."""
    try:
        yield
    except BaseException as error:
        _log(logging_service, f"worker cannot start: {error}")
        if isinstance(error, PackageFault):
            _end(f"boot: {error}", PACKAGE_FAILS)
        raise


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


def _end(message: str, code: int) -> NoReturn:
    print(message, file=sys.stderr, flush=True)  # noqa: T201 - the supervisor hands it on
    raise SystemExit(code)


if __name__ == "__main__":
    main()


CACHE = "BEAM_TFRECORD_BOOT_CACHE"

_WHEEL, _SOURCES = ".whl", (".tar.gz", ".zip")
_KEPT_S = 7 * 24 * 3600
# Of Beam's own making, and no packages though they may look so.
_NOT_PACKAGES = ("submission_environment_dependencies.txt", "pickled_main_session")


class PackageFault(Exception):
    """A package cannot be installed; the text says why."""


def installed(paths: Sequence[str], cache: str | None = None) -> str | None:
    """Return the directory that packages are installed in, for `sys.path`.

    Workers that start at the same time wait for the one that came first. What nobody has used for
    a week is removed.

    Args:
        paths: Staged files; those that are no packages are left aside.
        cache: Directory of installed packages; None: that of this user.

    Returns:
        None where there is no package among them.

    Raises:
        PackageFault: A package cannot be installed here.
    """
    packages = sorted(path for path in paths if is_package(path))
    if not packages:
        return None
    root = cache or os.environ.get(CACHE) or _own_directory()
    os.makedirs(root, exist_ok=True)
    digest = hashlib.sha256(repr((sys.version, sys.platform)).encode())
    for path in packages:
        with open(path, "rb") as file:
            digest.update(os.path.basename(path).encode() + _sha256(file))
    site = os.path.join(root, digest.hexdigest()[:24])
    with _locked(f"{site}.lock"):
        if not os.path.isdir(site):
            _install(packages, site, root)
        os.utime(site)
    _sweep(root)
    return site


def _sha256(file: BinaryIO) -> bytes:
    digest = hashlib.sha256()
    while chunk := file.read(2**20):
        digest.update(chunk)
    return digest.digest()


def is_package(path: str) -> bool:
    """Tell whether a staged file is a package by its name."""
    name = os.path.basename(path)
    return name.endswith((_WHEEL, *_SOURCES)) and name not in _NOT_PACKAGES


def _install(packages: Sequence[str], site: str, root: str) -> None:
    made = tempfile.mkdtemp(dir=root, prefix="making-")
    try:
        for path in packages:
            if path.endswith(_WHEEL):
                _unpack_wheel(path, made)
            else:
                _build(path, made)
        # A worker that dies half way leaves no directory under this name.
        os.rename(made, site)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _unpack_wheel(path: str, into: str) -> None:
    """Lay out a wheel as an installer would: its files, without scripts and headers.

    The layout is that of the binary distribution format of PyPA's specifications.
    """
    name = os.path.basename(path)
    _check_tags(name)
    with zipfile.ZipFile(path) as wheel:
        for member in wheel.infolist():
            target = _place(member.filename)
            if target is None or member.is_dir():
                continue
            place = os.path.normpath(os.path.join(into, target))
            if not place.startswith(into + os.sep):
                raise PackageFault(f"wheel {name!r} has a file outside of itself: {target!r}")
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with wheel.open(member) as source, open(place, "wb") as file:
                shutil.copyfileobj(source, file)


def _place(name: str) -> str | None:
    """Return where a file of a wheel belongs; None where a worker has no use for it."""
    first, _, rest = name.partition("/")
    if not first.endswith(".data"):
        return name
    scheme, _, rest = rest.partition("/")
    return rest if scheme in ("purelib", "platlib") else None


def _check_tags(name: str) -> None:
    from packaging.tags import sys_tags
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    try:
        tags = parse_wheel_filename(name)[3]
    except InvalidWheelFilename as error:
        raise PackageFault(f"{name!r} is no name of a wheel: {error}") from error
    if tags.isdisjoint(sys_tags()):
        wanted = ", ".join(sorted(map(str, tags)))
        raise PackageFault(f"wheel {name!r} is for {wanted}, which this machine is not")


def _build(path: str, into: str) -> None:
    if importlib.util.find_spec("pip") is None:
        raise PackageFault(
            f"{os.path.basename(path)!r} is a source package and there is no pip on this worker: "
            "pass a wheel, or install pip there"
        )
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    built = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", *options, "--target", into, path],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if built.returncode:
        said = built.stdout.decode(errors="replace").strip().splitlines()
        raise PackageFault(f"pip cannot install {os.path.basename(path)!r}: {' '.join(said[-2:])}")


def _own_directory() -> str:
    """Return a directory for this user alone: another one must not be able to put code there."""
    path = os.path.join(tempfile.gettempdir(), f"beam-tfrecord-packages-{os.getuid()}")
    try:
        return private_directory(path)
    except OSError as error:
        raise PackageFault(
            f"cannot install packages in {path!r}: {error.strerror}: set {CACHE} to another "
            "directory"
        ) from error


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sweep(root: str) -> None:
    """Remove what has not been used for long."""
    before_s = time.time() - _KEPT_S
    for entry in os.scandir(root):
        with contextlib.suppress(OSError):
            if entry.is_dir() and entry.stat().st_mtime < before_s:
                shutil.rmtree(entry.path, ignore_errors=True)


# In the directory of a job, beside the fault itself: there is something to look for.
UNLOADABLE = "unloadable"

# These are a machine's, and may not come again.
_PASSING = (OSError, MemoryError, EOFError)


def tell_of_unloadable(directory: str) -> None:
    """From now on, write down in `directory` what Beam cannot load in this process."""
    from apache_beam.internal import pickler

    load = pickler.loads

    def loads(*args: Any, **options: Any) -> Any:
        try:
            return load(*args, **options)
        except Exception as error:
            # The runner is told of it in any case.
            with contextlib.suppress(Exception):
                _tell(directory, error)
            raise

    pickler.loads = loads


def _tell(directory: str, error: Exception) -> None:
    from beam_tfrecord.errors import BeamTFRecordError, UsageError
    from beam_tfrecord.jobs.faults import record_fault
    from beam_tfrecord.storage import is_remote, put

    # Where the directory is gone, the job is over.
    if isinstance(error, _PASSING) or not (is_remote(directory) or os.path.isdir(directory)):
        return
    said = " ".join(str(error).split())
    if not isinstance(error, BeamTFRecordError):
        said = f"{type(error).__name__}: {said}"
    record_fault(directory, UsageError(unloadable_line(said)))
    put(os.path.join(directory, UNLOADABLE), b"")


def unloadable_line(said: str) -> str:
    """Return what a user is told of their code, given the error that a worker has met."""
    return (
        f"a worker cannot load your code ({said}): install what is missing where workers run, or "
        "keep it beside the file of your function"
    )
