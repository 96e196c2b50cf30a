import contextlib
import dataclasses
import functools
import gc
import itertools
import os
import threading
from importlib.util import find_spec

import pytest

from beam_tfrecord import storage
from beam_tfrecord.errors import TargetExists
from beam_tfrecord.storage import azure, gcs, object_store, s3
from tests.helpers.emulators.proxy import Faults, failing_proxy
from tests.helpers.emulators.servers import (
    amazon_server,
    azure_emulator,
    azure_server,
    google_emulator,
    google_server,
)
from tests.helpers.marks import mark_users

_NUMBERS = itertools.count()
# Azure's emulator comes from npm, which is not on every machine.
HAS_AZURE = azure_emulator() is not None and find_spec("azure") is not None
STORES = ("s3", "gs", "az")
# Azure's emulator has one account, with a name and key that its documentation gives.
AZURE = (
    "AccountName=devstoreaccount1;AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/"
    "K1SZFPTOtr/KBHBeksoGMGw=="
)


@dataclasses.dataclass(frozen=True)
class Store:
    """A bucket of an emulator, reached through a proxy that can be told to fail.

    Attributes:
        url: Of the bucket.
        faults: Of the proxy.
        environment: How a process of its own reaches it.
    """

    url: str
    faults: Faults
    environment: dict[str, str]

    @property
    def scheme(self):
        """``gs``, ``s3`` or ``az``."""
        return self.url.partition("://")[0]


@pytest.fixture(scope="session")
def endpoints():
    """Proxies by scheme."""
    pytest.importorskip("google.cloud.storage")
    pytest.importorskip("boto3")
    pytest.importorskip("moto")
    if google_emulator() is None:
        pytest.skip("fake-gcs-server is not installed")
    servers = {"gs": google_server, "s3": amazon_server}
    if HAS_AZURE:
        servers["az"] = azure_server
    with contextlib.ExitStack() as stack:
        yield {
            scheme: stack.enter_context(failing_proxy(stack.enter_context(server())))
            for scheme, server in servers.items()
        }


@pytest.fixture(params=STORES)
def store(request, endpoints, monkeypatch, tmp_path_factory):
    """An empty bucket of each store."""
    # Keep what killed jobs leave with the files of the test.
    monkeypatch.setenv("TMPDIR", str(tmp_path_factory.mktemp("scratch")))
    yield empty_bucket(request.param, endpoints, monkeypatch)
    close_clients(request.param)


@pytest.fixture
def small_parts(store, monkeypatch):
    """Upload in the smallest parts that the stores allow; return their size."""
    size = 5 * 2**20 if store.scheme == "s3" else 2**18
    monkeypatch.setattr(object_store, "PART_BYTES", size)
    return size


@pytest.fixture
def google_store(endpoints, monkeypatch):
    """An empty bucket of Google's."""
    yield empty_bucket("gs", endpoints, monkeypatch)
    close_clients("gs")


@pytest.fixture
def amazon_store(endpoints, monkeypatch):
    """An empty bucket of Amazon's."""
    yield empty_bucket("s3", endpoints, monkeypatch)
    close_clients("s3")


def empty_bucket(scheme, endpoints, monkeypatch):
    """Return an empty bucket; temporary failures are tried again at once."""
    if scheme not in endpoints:
        pytest.skip("there is no azurite-blob here: npm install azurite@3")
    url, faults = endpoints[scheme]
    faults.clear()
    environment = {
        "gs": {"STORAGE_EMULATOR_HOST": url},
        "s3": {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        },
        "az": {"AZURE_STORAGE_CONNECTION_STRING": f"{AZURE};BlobEndpoint={url}/devstoreaccount1"},
    }[scheme]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_store, "FIRST_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 5.0)
    monkeypatch.setattr(s3, "ATTEMPTS", 4)
    monkeypatch.setattr(azure, "RETRIES", 4)
    monkeypatch.setattr(azure, "DELAY_BASE", 0)
    bucket = f"bucket-{next(_NUMBERS)}"
    if scheme == "s3":
        s3.client().create_bucket(Bucket=bucket)
    elif scheme == "gs":
        gcs.client().create_bucket(bucket)
    else:
        azure.client().create_container(bucket)
    faults.clear()
    return Store(f"{scheme}://{bucket}", faults, {**os.environ, **environment})


def contend(path, times):
    """Let three threads take a lease so many times; return how often two had it, and one did."""
    together, holders, taken = [], [], []

    def work(number):
        while taken.count(number) < times:
            with contextlib.suppress(TargetExists), storage.lease(path) as held:
                holders.append(number)
                held.check()  # which lets the other threads run
                if len(holders) > 1:
                    together.append(number)
                holders.remove(number)
                taken.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(together), len(taken)


def put_if_absent(path, data):
    """Write an object unless there is one, as a lease is; return whether the one there is ours."""
    store = storage._OBJECT_STORES[path.partition("://")[0]]
    return store.put_matching(path, data, "") is not None


def give_up_soon(scheme, monkeypatch):
    """Let temporary failures become errors after a moment."""
    close_clients(scheme)
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 0.2)
    monkeypatch.setattr(s3, "ATTEMPTS", 2)
    monkeypatch.setattr(azure, "RETRIES", 1)


def close_clients(scheme):
    """Close the connections of a client, and let the next one have the settings of its time."""
    module = {"gs": gcs, "s3": s3, "az": azure}[scheme]
    module.client().close()
    module._client_of.cache_clear()
    gc.collect()
    _freeze_imports()


@functools.cache
def _freeze_imports():
    """Let later collections leave out what is imported, such as TensorFlow.

    Once, because what is frozen is never freed: pipelines that another thread still holds add up to
    gigabytes.
    """
    gc.freeze()


def pytest_itemcollected(item):
    # Clients forget the connections of answers that they ask for again.
    item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
    mark_users(item, {"endpoints"}, "stores")
