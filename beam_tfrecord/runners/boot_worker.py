"""The worker that ``beam-tfrecord-boot`` starts: asks the runner what to do, and becomes Beam's.

Beam is imported once, in the process that goes on to do the work: its import is most of what it
takes to start a worker.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from beam_tfrecord.runners import boot_packages
from beam_tfrecord.runners.boot import TASK, Task
from beam_tfrecord.runners.boot_checks import PACKAGE_FAILS, expected_here
from beam_tfrecord.runners.boot_loading import tell_of_unloadable

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
        site = boot_packages.installed(staged)
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
        raise boot_packages.PackageFault(f"staged file {name!r} lies outside of its directory")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    digest = hashlib.sha256()
    with open(path, "wb") as file:
        for chunk in chunks:
            digest.update(chunk)
            file.write(chunk)
    if sha256 and sha256 != digest.hexdigest():
        raise boot_packages.PackageFault(f"staged file {name!r} has come with other bytes")
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
        if isinstance(error, boot_packages.PackageFault):
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
