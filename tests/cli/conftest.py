"""What tests of the command line share."""

import pytest

from tests.helpers.cli_stand_ins import FakeJob


@pytest.fixture
def fake_job(monkeypatch):
    """Give what stands in for the functions that commands call."""
    return FakeJob(monkeypatch)
