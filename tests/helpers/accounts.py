"""What a run of the tests cost: seconds of CPU by test and by room, against a budget that holds.

A test of the quick tier may take one second of CPU, its own processes included. What is made for
many tests (fixtures of modules and sessions, imports) counts for the room and for no test.
``tests/budget.txt`` lists the exceptions. Continuous integration fails at twice the budget.
"""

import collections
import importlib
import os
import re
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers import effort, warm

BUDGET = Path(__file__).parents[1] / "budget.txt"
MOST_EXCEPTIONS = 60
# Of all workers of a run. Whether the machine is busy changes little.
MOST_MINUTES = 80 if effort.WHOLE else 10
# pytest and every JVM make one directory for all their runs.
OF_OTHERS = ("pytest-of-", "hsperfdata_")
_CLOCK = pytest.StashKey()


def cpu():
    """Return the seconds of CPU of this process, and of those that it has waited for or forked."""
    return sum(os.times()[:4]) + warm.cpu()


def exceptions(text):
    """Return {test: seconds} of a list whose lines are seconds, test and reason."""
    lines = (line.split(maxsplit=2) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(seconds) for seconds, name, _reason in lines}


class Accounts:
    """Measures tests in every worker; shows and judges them in the process that started these."""

    def __init__(self, config):
        self.config = config
        self.began = cpu()
        self.shared = 0.0  # seconds of this test's fixtures that many tests share
        self.tests = {}
        self.rooms = collections.Counter()
        self.missing = collections.Counter()
        self.workers = []
        self.temporary = set(os.listdir(tempfile.gettempdir()))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        """Start the clock of a test."""
        item.stash[_CLOCK] = cpu()
        self.shared = 0.0
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        """Import what a group of tests shares before the first of them."""
        began = cpu()
        if any(mark.args == ("tensorflow",) for mark in item.iter_markers("xdist_group")):
            for name in filter(find_spec, ("tensorflow", "keras")):
                importlib.import_module(name)
        self.shared += cpu() - began

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef):
        """Take off what many tests share, also at its end: a server's CPU counts when it ends."""
        began, before = cpu(), self.shared
        ending = []
        is_shared = fixturedef.scope != "function"
        if is_shared:
            fixturedef.addfinalizer(lambda: self._take_off(cpu() - ending.pop()))
        try:
            return (yield)
        finally:
            if is_shared:
                # The last finalizer that is added runs first.
                fixturedef.addfinalizer(lambda: ending.append(cpu()))
                self.shared = before + cpu() - began

    def _take_off(self, seconds):
        self.shared += seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        """Send the seconds of a test along with its last report."""
        report = yield
        if call.when == "teardown":
            seconds = cpu() - item.stash[_CLOCK]
            report.user_properties.append(("cpu", (seconds, seconds - self.shared)))
        return report

    def pytest_runtest_logreport(self, report):
        """Take the seconds of a test, or the reason why it was left out, such as a package."""
        test = report.nodeid.rpartition("@")[0] or report.nodeid
        if report.when == "teardown":
            seconds, self.tests[test] = dict(report.user_properties)["cpu"]
            self.rooms[test.split("/")[1] if "/" in test else "."] += seconds
        if report.skipped and isinstance(report.longrepr, tuple):
            reason = report.longrepr[2].removeprefix("Skipped: ")
            package = re.match("could not import '([^']+)'", reason)
            self.missing[package[1] if package else reason] += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """Take what a worker used."""
        self.workers += [node.workeroutput["used"]] if "used" in node.workeroutput else []

    def pytest_sessionfinish(self, session):
        """Send what a worker used; or judge, when all have done so."""
        used = (cpu() - self.began, "tensorflow" in sys.modules)
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["used"] = used
            return
        self.workers = self.workers or [used]
        if session.exitstatus == 0 and self.faults():
            session.exitstatus = 1

    def faults(self):
        """Return a line for each thing that is over its budget or was left behind."""
        if os.environ.get("BEAM_TFRECORD_REQUIRE_ALL", "") in ("", "0"):
            return []
        minutes = sum(seconds for seconds, _ in self.workers) / 60
        found = [f"{minutes:.1f} minutes of CPU, of at most {MOST_MINUTES}"]
        found = found if minutes > MOST_MINUTES else []
        if effort.WHOLE:  # Slow tests kill processes, which then leave what they had.
            return found
        found += [f"left in the temporary directory: {name}" for name in self.litter()]
        allowed = exceptions(BUDGET.read_text())
        if len(allowed) > MOST_EXCEPTIONS:
            found.append(f"{BUDGET.name}: {len(allowed)} tests, of at most {MOST_EXCEPTIONS}")
        ran = {test.partition("[")[0] for test in self.tests}
        is_whole_tier = self.config.args_source is pytest.Config.ArgsSource.TESTPATHS
        found += [
            f"{BUDGET.name}: no quick test {name}"
            for name in allowed
            if is_whole_tier and name not in ran
        ]
        if sum(imported for _, imported in self.workers) > 1:
            found.append("more than one worker imported TensorFlow: xdist_group('tensorflow')")
        for test, seconds in self.tests.items():
            most = 2 * allowed.get(test.partition("[")[0], 1.0)
            if seconds > most:
                found.append(f"{seconds:.1f} s of CPU, of at most {most:g}: {test}")
        return found

    def litter(self):
        """Return what is in the temporary directory that was not there before."""
        found = set(os.listdir(tempfile.gettempdir())) - self.temporary
        return sorted(name for name in found if not name.startswith(OF_OTHERS))

    def pytest_terminal_summary(self, terminalreporter):
        """Show seconds by room, the slowest tests, what is missing and what is at fault."""
        line = terminalreporter.write_line
        slowest = sorted(self.tests.items(), key=lambda pair: -pair[1])[:10]
        line("seconds of CPU: " + ", ".join(f"{k} {v:.0f}" for k, v in self.rooms.most_common()))
        for test, seconds in slowest:
            line(f"{seconds:5.1f} {test}")
        used = ", ".join(f"{seconds:.0f}" for seconds, _ in self.workers)
        line(f"{len(self.tests):,} cases; CPU of each worker: {used} s")
        if self.missing:
            names = ", ".join(sorted(self.missing))
            line(f"left out {self.missing.total()} ({names}): scripts/test --all has everything")
        for fault in self.faults():
            line(fault, red=True)
