"""Files of web servers: every format, each way a server may answer, and one line for a fault."""

import base64
import datetime
import email.utils
import gzip
import subprocess

import pytest

import beam_tfrecord as bt
from beam_tfrecord import storage
from beam_tfrecord.errors import InputChanged, StorageError, UsageError
from beam_tfrecord.sources.files import list_files
from beam_tfrecord.storage import object_store, web_and_beam
from tests.helpers.cli_stand_ins import run
from tests.helpers.emulators.web import web_server
from tests.helpers.reading import rows_in
from tests.storage.made_inputs import SUFFIXES, made

CSV = b"id,name\n" + b"".join(b"%d,n%d\n" % (row, row * row) for row in range(500))
GZIPPED = gzip.compress(CSV, mtime=0)


@pytest.fixture
def server(monkeypatch):
    """A server; temporary failures are tried again at once, and not for long."""
    monkeypatch.setattr(object_store, "FIRST_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 3.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with web_server() as running:
        yield running
        web_and_beam.client().close()


def remote_rows(url, kind="Csv"):
    source = getattr(bt, f"ReadFrom{kind}")(url)
    return rows_in(source.batches())


def refusal(*arguments):
    """Return the one line with which a command fails."""
    failed = run(*arguments)
    assert failed.exit_code in (1, 2)
    (line,) = failed.stderr.splitlines()
    return line


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("suffix", [".parquet", ".csv.gz", ".tar", ".xlsx", *SUFFIXES])
def test_every_format_is_read_as_a_local_file(server, tmp_path, suffix):
    data = made(suffix, tmp_path)
    (tmp_path / f"a b{suffix}").write_bytes(data)
    server.put(f"/data/a b{suffix}", data)
    local = bt.write(tmp_path / f"a b{suffix}", tmp_path / "local")
    assert bt.write(f"{server.url}/data/a%20b{suffix}?token=s3cret", tmp_path / "out") == local
    assert all(" bytes=" in request for request in server.requests)
    assert set(server.encodings) == {"identity"}


@pytest.mark.slow
def test_all_commands_take_a_url_and_a_second_time_there_is_nothing_to_do(server, tmp_path):
    data, out = made(".parquet", tmp_path), str(tmp_path / "out")
    server.put("/a.parquet", data)
    (tmp_path / "a.parquet").write_bytes(data)
    url = f"{server.url}/a.parquet?X-Signature=s3cret"
    said = []
    for command in (
        ["plan", url, out],
        ["schema", url],
        ["head", url, "--json"],
        ["show", url],
        ["write", url, out],
        ["extract", url, str(tmp_path / "stage")],
    ):
        done = run(*command)
        assert done.exit_code == 0, done.stderr
        said += [done.stdout, done.stderr]
    assert [said[2], said[4]] == [
        run(*command, str(tmp_path / "a.parquet"), *options).stdout
        for command, options in ((["schema"], []), (["head"], ["--json"]))
    ]
    # Signed anew, it is the same file.
    again = run("write", url.replace("s3cret", "s3cret2"), out)
    assert f"{out} already holds this dataset: nothing to do" in again.stderr
    server.put("/a.parquet", data, etag='"new"')
    assert "was edited" in refusal("write", url, out)
    files = (path for path in tmp_path.rglob("*") if path.is_file())
    assert not any("s3cret" in text for text in said)
    assert not any(b"s3cret" in path.read_bytes() for path in files)


def test_files_of_several_urls_have_names_like_local_ones(server):
    for name in ("k=1/a.csv", "k=2/é.csv"):
        server.put(f"/in/{name}", CSV)
    urls = [f"{server.url}/in/k=2/%C3%A9.csv?b=/", f"{server.url}/in/k=1/a.csv#part"]
    found = list(list_files(urls, [".csv"]))
    assert [file.name for file in found] == ["k=1/a.csv", "k=2/é.csv"]
    assert [file.partitions for file in found] == [(("k", "1"),), (("k", "2"),)]
    assert [file.bytes for file in found] == [len(CSV)] * 2
    assert len(remote_rows(urls[0])) == 500
    with pytest.raises(UsageError, match="differ only in the queries of their URLs"):
        list(list_files([f"{urls[1]}?a", f"{server.url}/in/k=1/a.csv?b"], [".csv"]))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"etag": "", "headers": {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}},
        {"etag": 'W/"weak"'},
        {"most": 1000},
        {"states_size": False},
        {"faults": ["503", "429"], "headers": {"Retry-After": "0"}},
        {"faults": ["", "", "cut", "cut"]},
        {"faults": ["", "", "cut"], "states_size": False},
        {"faults": ["cut", "hang"]},
        {"faults": ["slow"]},
    ],
    ids=str,
)
def test_servers_that_can_be_read(server, monkeypatch, options):
    monkeypatch.setattr(web_and_beam, "SILENCE_SECONDS", 0.5)
    page = server.put("/a.csv", CSV, **options)
    assert storage.read_bytes(f"{server.url}/a.csv") == CSV
    with storage.open_read(f"{server.url}/a.csv", buffer_bytes=3000) as file:
        assert file.read() == CSV
    assert page.faults == []


@pytest.mark.parametrize("options", [{}, {"takes_ranges": False}, {"etag": ""}])
def test_an_empty_file_is_one(server, options):
    server.put("/a.csv", b"", **options)
    assert storage.file_size(f"{server.url}/a.csv") == 0
    assert storage.read_bytes(f"{server.url}/a.csv") == b""
    assert remote_rows(f"{server.url}/a.csv") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"takes_ranges": False}, "its server sends no ranges of bytes: download the file first"),
        ({"takes_ranges": False, "states_size": False}, "its server sends no ranges of bytes"),
        ({"etag": ""}, "states neither ETag nor Last-Modified"),
        (
            {"headers": {"Content-Encoding": "gzip"}},
            "sends it with Content-Encoding gzip, although",
        ),
        ({"headers": {"Content-Range": "bytes 0-0/*"}}, "sends 'bytes 0-0/*': download"),
        ({"headers": {"Content-Range": "bytes 7-7/99"}}, "asked for bytes 0-0, and sends 'bytes 7"),
        ({"faults": ["403"]}, r"(HTTP 403): permission denied: check the URL, which may be signed"),
        ({"user": "YTpi"}, "(HTTP 401): permission denied"),
        ({"faults": ["418"]}, "(HTTP 418): check the URL"),
        ({"faults": ["503…"]}, "(HTTP 503): try again later"),
        ({"faults": ["429"], "headers": {"Retry-After": "3600"}}, "(HTTP 429): try again later"),
        ({"faults": ["cut…"]}, "more expected)): try again"),
        ({"faults": ["hang…"]}, "(timed out): try again later"),
    ],
    ids=str,
)
def test_servers_that_cannot_be_read_are_one_line(server, monkeypatch, options, message):
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 0.3)
    monkeypatch.setattr(web_and_beam, "SILENCE_SECONDS", 0.2)
    server.put("/a.csv", CSV, **options)
    line = refusal("schema", f"{server.url}/a.csv?token=s3cret")
    assert f"'{server.url}/a.csv'" in line
    assert message in line
    assert "s3cret" not in line


def test_what_is_not_there_or_cannot_be_asked_is_one_line(server, monkeypatch):
    monkeypatch.setattr(object_store, "RETRY_SECONDS", 0.3)
    secret = "?token=s3cret"
    server.put("/a.csv", CSV)
    server.pages["/round.csv"] = f"{server.url}/round.csv"
    with_user = server.url.replace("//", "//me:s3cret@")
    for path, message in (
        (f"{server.url}/b.csv{secret}", "no such file: a URL names one file, because web servers"),
        (f"{server.url}/*.csv{secret}", "no such file: a URL names one file, because web servers"),
        (f"{server.url}/data/{secret}", "cannot tell what"),
        (f"{server.url}/a.jpg{secret}", "web servers do not list their files"),
        (f"{server.url}/round.csv{secret}", "Exceeded 30 redirects): check the URL"),
        (f"{with_user}/a.csv", "has a user or password in it"),
        (
            f"{server.url}/a.zip{secret}",
            "is a zip archive: download and unpack it first: unzip a.zip -d a",
        ),
        (f"http://[::1/a.csv{secret}", "(no valid URL): check the URL"),
        (f"http://127.0.0.1:1/a.csv{secret}", "Connection refused): try again later"),
    ):
        line = refusal("schema", path)
        assert message in line
        assert "s3cret" not in line
    refused = refusal("write", f"{server.url}/a.csv", f"{server.url}/out{secret}")
    assert f"cannot write to '{server.url}/out': give a local directory" in refused
    assert "s3cret" not in refused
    with pytest.raises(UsageError, match="https:// is for input only"):
        storage.put("https://127.0.0.1/a", b"")


def test_a_server_that_is_not_there_is_given_up_before_one_that_is_busy(server, monkeypatch):
    monkeypatch.setattr(web_and_beam, "UNANSWERED_SECONDS", 0)
    server.put("/a.csv", CSV, faults=["503"])
    with pytest.raises(StorageError, match=r"Connection refused\): try again later"):
        storage.status("http://127.0.0.1:1/a.csv")
    assert storage.status(f"{server.url}/a.csv").bytes == len(CSV)


def test_redirects_are_followed(server):
    server.put("/real.csv", CSV)
    server.pages["/a.csv"] = f"{server.url}/b.csv"
    server.pages["/b.csv"] = "/real.csv?signed"
    assert len(remote_rows(f"{server.url}/a.csv")) == 500
    assert [r.partition(" bytes")[0] for r in server.requests[:3]] == [
        "GET /a.csv",
        "GET /b.csv",
        "GET /real.csv?signed",
    ]


def test_a_gz_file_may_be_called_encoded(server):
    server.put("/a.csv.gz", GZIPPED, headers={"Content-Encoding": "gzip"})
    assert len(remote_rows(f"{server.url}/a.csv.gz")) == 500


def test_the_server_says_when_to_ask_again(server, monkeypatch):
    waited = []
    monkeypatch.setattr(object_store.time, "sleep", waited.append)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2.9)
    for said, least in (("1", 1.0), (email.utils.format_datetime(later, usegmt=True), 0.5)):
        server.put("/a.csv", CSV, faults=["429"], headers={"Retry-After": said})
        assert storage.file_size(f"{server.url}/a.csv") == len(CSV)
        assert waited.pop() >= least
    assert waited == []


@pytest.mark.parametrize(
    "state",
    [
        {"etag": '"new"'},
        {"etag": 'W/"new"'},
        {"etag": "", "headers": {"Last-Modified": "Mon, 01 Jan 2024 00:00:01 GMT"}},
        {"data": CSV[:-7]},
        {"data": b""},
        None,
    ],
    ids=str,
)
def test_a_change_while_a_file_is_read_is_noticed(server, state):
    before = {"etag": '"old"'}
    if state is not None and state.get("etag", '"')[:1] != '"':
        before = {"etag": 'W/"old"'} if state["etag"] else {"etag": ""}
        before["headers"] = {"Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
    server.put("/a.csv", CSV, **before)
    url = f"{server.url}/a.csv"
    (file,) = list_files([url], [".csv"])
    with storage.open_read(url, buffer_bytes=100, version=file.version) as opened:
        assert opened.read(50) == CSV[:50]
        if state is None:
            del server.pages["/a.csv"]
        else:
            server.put("/a.csv", **{"data": CSV} | before | {"etag": '"new"'} | state)
        with pytest.raises(InputChanged, match=rf"'{url}' was replaced while it was read: run"):
            opened.read()
    if state is not None:
        with pytest.raises(InputChanged, match="was replaced"):
            storage.open_read(url, version=file.version)


def test_netrc_has_the_password(server, tmp_path, monkeypatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password s3cret\n")
    (tmp_path / "netrc").chmod(0o600)
    server.put("/a.csv", CSV, user=base64.b64encode(b"me:s3cret").decode())
    with pytest.raises(StorageError, match=r"HTTP 401.*~/\.netrc"):
        remote_rows(f"{server.url}/a.csv")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert len(remote_rows(f"{server.url}/a.csv")) == 500


def test_certificates_are_checked(tmp_path, monkeypatch, server):
    file = tmp_path / "both.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
        f" -subj /CN=t -addext subjectAltName=IP:127.0.0.1 -keyout {tmp_path}/key"
        f" -out {tmp_path}/cert"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    file.write_text((tmp_path / "key").read_text() + (tmp_path / "cert").read_text())
    with web_server(file) as secure:
        secure.put("/a.csv", CSV)
        url = f"{secure.url}/a.csv"
        line = refusal("schema", f"{url}?token=s3cret")
        assert f"cannot read '{url}' (self-signed certificate: if it is right, name" in line
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "cert"))
        web_and_beam.client().close()
        assert len(remote_rows(url)) == 500
        line = refusal("schema", url.replace("127.0.0.1", "localhost"))
        assert "certificate is not valid for 'localhost'" in line
