"""Saves what was measured as a JSON file, which also describes the machine."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
VERSIONS_OF = ("beam-tfrecord", "apache-beam", "pyarrow", "numpy", "tensorflow", "tfx-bsl", "isal")


def describe_machine(
    work: Path, fast: Path | None, packages: Sequence[str] = VERSIONS_OF
) -> dict[str, Any]:
    """Return what a reader needs to judge the figures; no names and no paths of this machine."""
    model = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    versions = {}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "cores": os.cpu_count(),
        "cpu": model,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        "python": platform.python_version(),
        "filesystem": _filesystem_type(work),
        "fast_filesystem": _filesystem_type(fast) if fast else None,
        "versions": versions,
    }


def save(name: str, found: Mapping[str, Any], *, directory: Path = RESULTS) -> Path:
    """Write what a script found as JSON among the results, under the time of day in UTC.

    Args:
        name: Of what was measured.
        found: The figures.
        directory: Where to.

    Returns:
        The file.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stamp = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d-%H%M%S}"
    path = directory / f"{stamp}-{name}.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return path


def _filesystem_type(folder: Path) -> str:
    """Return the type of the filesystem a folder lies on, from the longest mount point above."""
    try:
        mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    above = {str(parent) for parent in (folder.resolve(), *folder.resolve().parents)}
    fitting = [(len(point), kind) for point, kind in mounts if point in above]
    return max(fitting)[1] if fitting else "unknown"
