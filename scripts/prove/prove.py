"""Long proofs of what the package promises; the last result of each is kept beside this file.

``types``: random columns of every family of types, before three readers. ``flips``: one flipped bit
at random places of datasets is found, and sound datasets of random schemas have no fault. ``fuzz``:
the kernel's readers under sanitizers. ``kill``: jobs that are killed at random moments, and go on.
``properties``: those of the kernel, for many examples. ``flink``: hosts that are lost while a job
runs on a real cluster.
``replaced``: datasets that are replaced while they are read.
``elements``: bundles that emit for seconds lose nothing, on every runner of one machine.
``repair``: random damage to shards, whose values may hold framed records.
``combinations``: every option with every kind of element and source, pairwise.
``changes``: inputs that change while they are read. ``containers``: the same rows in other
containers, orders and groupings.
``pictures``: odd and damaged pictures, before TensorFlow and Pillow. ``hostile``: manifests of
any content under right hashes, and pipes, devices and links in place of files.
``partitions``: tables with keys of every type of every database are read in parts, and completely.
``index``: random damage to shards and indexes, and rows that are read by number.
``numbers``: random decimal numbers through every way into a dataset, rounded once, losses reported.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.metadata
import json
import platform
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
_PACKAGES = ("beam-tfrecord", "numpy", "pyarrow", "tensorflow", "tfx-bsl", "hypothesis")


def keep(name: str, found: dict[str, Any], seconds: float) -> None:
    """Write the result of a proof in place of the last one."""
    made = {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        "python": platform.python_version(),
        "versions": {package: importlib.metadata.version(package) for package in _PACKAGES},
        "seconds": round(seconds),
    }
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(found | made, indent=1, ensure_ascii=False)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def main() -> None:
    """Run one proof; it ends with an error where something does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    proofs = parser.add_subparsers(dest="proof", required=True)
    types = proofs.add_parser("types")
    types.add_argument("--examples", type=int, default=2000, help="random columns of each family")
    flips = proofs.add_parser("flips")
    flips.add_argument("--flips", type=int, default=1000)
    flips.add_argument("--datasets", type=int, default=100, help="sound ones of random schemas")
    flips.add_argument("--seed", type=int, default=0)
    fuzz = proofs.add_parser("fuzz")
    fuzz.add_argument("--runs", type=int, default=10_000_000)
    fuzz.add_argument("--seed", type=int, default=1)
    partitions = proofs.add_parser("partitions")
    partitions.add_argument("--tables", type=int, default=20, help="of each type of key and driver")
    partitions.add_argument("--seed", type=int, default=0)
    kill = proofs.add_parser("kill")
    kill.add_argument("--kills", type=int, default=50, help="of jobs of each order")
    kill.add_argument("--seed", type=int, default=0)
    replaced = proofs.add_parser("replaced")
    replaced.add_argument("--trials", type=int, default=200, help="of each reader and replacement")
    replaced.add_argument("--seconds", type=int, default=120, help="beside jobs of another process")
    replaced.add_argument("--seed", type=int, default=0)
    properties = proofs.add_parser("properties")
    properties.add_argument("--examples", type=int, default=1000, help="of each property")
    flink = proofs.add_parser("flink")
    flink.add_argument("--kills", type=int, default=5, help="at each moment of a job")
    elements = proofs.add_parser("elements")
    elements.add_argument("--runs", type=int, default=20, help="on each runner")
    repair = proofs.add_parser("repair")
    repair.add_argument("--damages", type=int, default=2100)
    repair.add_argument("--seed", type=int, default=0)
    combinations = proofs.add_parser("combinations")
    combinations.add_argument("--cases", type=int, default=10_000, help="most of each family")
    combinations.add_argument("--seed", type=int, default=0)
    changes = proofs.add_parser("changes")
    changes.add_argument("--rounds", type=int, default=3, help="of every input, change and moment")
    changes.add_argument("--seed", type=int, default=0)
    containers = proofs.add_parser("containers")
    containers.add_argument("--tables", type=int, default=50, help="random ones")
    containers.add_argument("--seed", type=int, default=100)
    pictures = proofs.add_parser("pictures")
    pictures.add_argument("--pictures", type=int, default=50_000, help="damaged ones")
    pictures.add_argument("--seed", type=int, default=0)
    hostile = proofs.add_parser("hostile")
    hostile.add_argument("--manifests", type=int, default=1000)
    hostile.add_argument("--seed", type=int, default=0)
    index = proofs.add_parser("index")
    index.add_argument("--cases", type=int, default=100_000)
    index.add_argument("--seed", type=int, default=0)
    numbers = proofs.add_parser("numbers")
    numbers.add_argument("--rounds", type=int, default=200, help="of 400 columns each")
    numbers.add_argument("--seed", type=int, default=0)
    options = vars(parser.parse_args())
    name = options.pop("proof")
    begun = time.monotonic()
    found = importlib.import_module(f"prove_{name}").prove(**options)
    keep(name, found, time.monotonic() - begun)
    print(json.dumps(found, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
