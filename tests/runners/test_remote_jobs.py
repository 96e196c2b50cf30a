"""What workers on other machines cannot reach, or must not be told, is refused at once."""

import pytest

from beam_tfrecord.errors import UsageError
from beam_tfrecord.jobs.preflight import SECRET_OPTIONS, check_reach, check_secrets
from beam_tfrecord.sources.choose import make_source

OUTPUT = "gs://lake/out"


def check(paths, output, *, from_=None, **options):
    """Check what workers reach, without asking a store for its output."""
    check_reach("dataflow", make_source(paths, from_=from_, options=options), output)


@pytest.mark.parametrize(
    ("paths", "output", "line"),
    [
        ("gs://lake/a.csv", "/out", "dataflow workers cannot write to '/out': give an output on"),
        ("/a.csv", OUTPUT, "dataflow workers cannot see '/a.csv': copy it to gs:// or s3://"),
        (["gs://lake/a.csv", "b.csv"], OUTPUT, "dataflow workers cannot see 'b.csv': copy it to"),
    ],
)
def test_files_of_this_machine_are_refused(paths, output, line):
    with pytest.raises(UsageError) as caught:
        check(paths, output)
    assert str(caught.value).startswith(line)


@pytest.mark.parametrize("url", ["sqlite:////shop.db", "/shop.db", "duckdb:////shop.duckdb"])
def test_databases_of_this_machine_are_refused(url):
    with pytest.raises(UsageError, match=r"workers cannot see the database '.*': extract it to gs"):
        check(url, OUTPUT, from_="sql", table="trips")


def test_what_workers_reach_is_taken():
    check(["gs://lake/a.csv", "s3://lake/b.csv"], OUTPUT)
    options = {"table": "trips", "password_env": "PASSWORD", "properties": {"ssl": "true"}}
    url = "jdbc:mariadb://db.example/shop"
    check(url, OUTPUT, **options)


@pytest.mark.parametrize("flag", SECRET_OPTIONS)
def test_options_that_are_secrets_are_refused(flag):
    for words in ([f"{flag}=hunter2"], [flag, "hunter2"]):
        with pytest.raises(UsageError, match=f"^{flag} would be readable") as caught:
            check_secrets("dataflow", words)
        assert "hunter2" not in str(caught.value)


def test_a_password_in_a_url_is_refused_and_what_is_no_secret_is_taken():
    with pytest.raises(UsageError, match="a password in --s3_endpoint_url would be readable"):
        check_secrets("dataflow", ["--s3_endpoint_url=https://me:hunter2@store.example"])
    check_secrets("dataflow", ["--project=p", "--temp_location=gs://b/t", "--labels=team=data"])
