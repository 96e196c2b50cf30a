"""A host that is lost at any moment of a job on a real cluster costs only time."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.runners.flink_cluster import Gate, running_cluster, write_trips, written_here
from tests.runners.flink_kills import SIGNS, kill_task_manager, lose_host


def prove(*, kills: int = 5) -> dict[str, Any]:
    """Return how often a job went on after a kill, so many at each moment of a job.

    Raises:
        AssertionError: A job failed, or its files are others than those of an undisturbed one.
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        trips = write_trips(root)
        expected = written_here(trips, root)
        with running_cluster(root / "state") as cluster:
            for number in range(kills):
                for sign in ("", *SIGNS):
                    cluster.await_rest()
                    directory = root / f"{number}{sign}"
                    directory.mkdir()
                    if sign:
                        lose_host(sign, cluster, trips, expected, directory)
                    else:
                        kill_task_manager(cluster, trips, expected, Gate(directory), directory)
    return {"kills": kills, "moments": ["reading", *SIGNS]}
