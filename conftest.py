"""What holds for every test: a quiet TensorFlow, messages with flags, no skipping by a flag."""

import functools
import gc
import os
import sys
import types

import pytest
from hypothesis import settings

# Before anything imports TensorFlow: no device search, no banner, no thread for every core.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")

from beam_tfrecord.base.scratch import remove_scratch
from beam_tfrecord.errors import options_named_by

# Before anything imports them: failed comparisons show their values.
pytest.register_assert_rewrite("beam_tfrecord.testing", "tests.helpers")

from tests.helpers.accounts import Accounts  # noqa: E402 - after the variables
from tests.helpers.lazy import packages_of  # noqa: E402
from tests.helpers.marks import mark_slow_cases  # noqa: E402

TENSORFLOW = {"tensorflow", "keras", "tensorflow_transform"}
REQUIRE_ALL = os.environ.get("BEAM_TFRECORD_REQUIRE_ALL", "") not in ("", "0")

# A busy machine is not a fault of the code. Continuous integration judges a commit by the same
# examples each time; a developer's runs look for new ones.
settings.register_profile("ours", deadline=None, derandomize=REQUIRE_ALL)
settings.load_profile("ours")


@pytest.fixture(scope="session", autouse=True)
def _run_as_a_program_does():
    """Name options in messages by flag; test_option_names.py checks both. Leave nothing behind."""
    with options_named_by("flag"):
        yield
    # A worker does not end as a program does, which removes what is left of its pipelines.
    gc.collect()
    remove_scratch()


def pytest_configure(config):
    """Measure the tests; let them name their group also where nothing runs side by side."""
    config.addinivalue_line("markers", "xdist_group(name): tests that share what takes long")
    config.pluginmanager.register(Accounts(config))


def pytest_collection_finish():
    """Remember the arguments of methods: Beam inspects every method of a DoFn eight times.

    That is a third of the time of a small job.
    """
    if core := sys.modules.get("apache_beam.transforms.core"):
        inspect = core.get_function_args_defaults
        of_method = functools.cache(lambda function: inspect(types.MethodType(function, 0)))
        core.get_function_args_defaults = lambda function: (
            of_method(function.__func__)
            if isinstance(function, types.MethodType)
            else inspect(function)
        )


def _fail_if_skipped(report):
    """Turn a skip into a failure under ``BEAM_TFRECORD_REQUIRE_ALL``; an expected failure stays."""
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"BEAM_TFRECORD_REQUIRE_ALL forbids skipping: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    """Judge the report of every phase of a test."""
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    """Judge modules that skip themselves whole, as importorskip does."""
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Find slow cases; let one worker run what uses TensorFlow: the import takes seconds."""
    mark_slow_cases(items)
    for item in items:
        if not packages_of(item.module).isdisjoint(TENSORFLOW):
            item.add_marker(pytest.mark.xdist_group("tensorflow"))
