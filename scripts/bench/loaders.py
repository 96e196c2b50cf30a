"""Measures reading for training beside other packages: the same rows and pictures in each format.

    uv venv /tmp/loaders && uv pip install -p /tmp/loaders -r scripts/bench/loaders-requirements.txt
    /tmp/loaders/bin/python scripts/bench/loaders.py prepare --place DIR
    /tmp/loaders/bin/python scripts/bench/loaders.py check --place DIR
    /tmp/loaders/bin/python scripts/bench/loaders.py measure --place DIR

`prepare` writes 1,000,000 rows of 10 columns and 4,000 JPEG files, and converts them to the format
of each loader. `check` reads an epoch of each, compares all values, and counts how often each
example came. `measure` takes about 7 minutes on 2 idle cores for each of `--kinds rows` and
`--kinds pictures`. The loaders take turns in processes of their own, with files that the page cache
holds. Each process opens its format, and reads batches of 256 rows or 64 pictures of a shuffled
epoch for a second, with 0, 1 and 2 workers. Then it reads 1,024 rows at random indices. Numbers of
rows become tensors or arrays, and texts lists of str (tensors in TensorFlow). Pictures become uint8
tensors or arrays (float32 in TensorFlow).

The measures:

* seconds from the begin of the imports until the first batch, without workers: packages leave some
  imports until then;
* examples a second after the first 10 batches, and examples for a CPU second of all processes;
* peak memory: the highest sum of the resident bytes of all processes. Pages of mapped files count,
  and pages that two processes share count twice;
* rows a second at random indices, as the package returns rows: dicts, or an Arrow table.

PyTorch computes in one thread, as in its workers. `measure` prints tables in Markdown: medians with
half of their range. The results have all runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from loader_cases import LOADERS
from loader_data import NUMBER, Check, Kind, Source, make_pictures, make_rows
from loader_facts import FACTS, Facts
from processes import session_cpu, session_rss
from saving import RESULTS, VERSIONS_OF, describe_machine, save

KINDS: tuple[Kind, ...] = ("rows", "pictures")
WARM_UP_BATCHES = 10
RANDOM_READS = 1024
RANDOM_ROUNDS = 10
SAMPLE_SECONDS = 0.1
TIMEOUT_S = 900.0
PACKAGES = (
    *VERSIONS_OF,
    "array-record", "datasets", "grain", "litdata", "mosaicml-streaming", "pillow", "simplejpeg",
    "torch", "torchvision", "webdataset",
)  # fmt: skip


def data_path(place: Path, name: str, kind: Kind) -> Path:
    """Return the directory of the format of a loader."""
    return place / f"{LOADERS[name].data}-{kind}"


# In the process of a loader


def read_epoch(name: str, kind: Kind, path: Path, workers: int | None, seconds: float) -> Any:
    """Measure batches of an epoch, for `seconds` after the first ones."""
    opened = time.monotonic()
    batches = iter(LOADERS[name].epoch(path, kind, workers or 0))
    next(batches)
    first_batch_s = time.monotonic() - opened
    for _ in itertools.islice(batches, WARM_UP_BATCHES):
        pass
    began, cpu = time.monotonic(), session_cpu(os.getsid(0))
    examples = 0
    for batch in batches:
        examples += len(batch[NUMBER[kind]])
        if time.monotonic() - began > seconds:
            break
    wall = time.monotonic() - began
    return {
        "workers": workers,
        "first_batch_s": first_batch_s,
        "examples_per_s": examples / wall,
        "examples_per_cpu_s": examples / max(session_cpu(os.getsid(0)) - cpu, 0.01),
        "span": [opened, time.monotonic()],
    }


def read_random(name: str, path: Path, count: int) -> float | None:
    """Return the rows a second at random indices, the median of rounds; None if it cannot."""
    opener = LOADERS[name].pick
    if opener is None:
        return None
    pick = opener(path)
    random = np.random.default_rng(0)
    rates = []
    for _ in range(RANDOM_ROUNDS):
        indices = random.choice(count, RANDOM_READS, replace=False).tolist()
        began = time.monotonic()
        pick(indices)
        rates.append(RANDOM_READS / (time.monotonic() - began))
    return statistics.median(rates)


def measure_here(name: str, kind: Kind, place: Path, seconds: float) -> dict[str, Any]:
    """Measure a loader in this process, which does nothing else."""
    began = time.monotonic()
    for module in LOADERS[name].modules:
        importlib.import_module(module)
    import_s = time.monotonic() - began
    path = data_path(place, name, kind)
    epochs = [read_epoch(name, kind, path, workers, seconds) for workers in LOADERS[name].workers]
    found = {"import_s": import_s, "epochs": epochs}
    if kind == "rows":
        count = Source(place, kind).table.num_rows
        found["random_rows_per_s"] = read_random(name, path, count)
    return found


def write_here(name: str, kind: Kind, place: Path) -> dict[str, Any]:
    """Convert the source to the format of a loader."""
    out = data_path(place, name, kind)
    out.mkdir()
    began = time.monotonic()
    LOADERS[name].write(Source(place, kind), out)
    files = [path for path in out.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    return {"write_s": time.monotonic() - began, "bytes": size, "files": len(files)}


def check_here(name: str, kind: Kind, place: Path) -> dict[str, Any]:
    """Read a full epoch with all workers, and check it."""
    check = Check(Source(place, kind))
    workers = LOADERS[name].workers[-1]
    for batch in LOADERS[name].epoch(data_path(place, name, kind), kind, workers or 0):
        check.add(batch)
    return {"workers": workers, **check.found()}


def run_here(task: str, name: str, kind: Kind, place: Path, seconds: float) -> dict[str, Any]:
    """Do a task in this process."""
    if task == "measure":
        return measure_here(name, kind, place, seconds)
    return (write_here if task == "write" else check_here)(name, kind, place)


# In the process that starts the others


def run_apart(task: str, name: str, kind: Kind, options: argparse.Namespace) -> dict[str, Any]:
    """Do a task in a process and session of its own; sample the memory of all its processes.

    Returns:
        What the task found, or a single ``error``.
    """
    script = Path(__file__).resolve()
    command = [sys.executable, "-W", "ignore", str(script), task, "--place", str(options.place)]
    command += ["--run-here", name, kind, "--seconds", str(options.seconds)]
    # Workers import functions of these modules by name.
    paths = [str(script.parent), str(script.parents[2]), os.environ.get("PYTHONPATH")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        # Threads of PyTorch wait for each other in a loop, which costs most on a busy machine.
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_DATASETS_OFFLINE": "1",
    }
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            command, stdout=out, stderr=err, env=environment, start_new_session=True
        )
        samples = list(_memory(process, TIMEOUT_S))
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            lines = [line for line in err.read().splitlines() if line.strip()]
            return {"error": lines[-1] if lines else f"ended with {process.returncode}"}
        found: dict[str, Any] = json.loads(out.read().splitlines()[-1])
    for epoch in found.get("epochs", ()):
        start, stop = epoch.pop("span")
        epoch["peak_bytes"] = max(
            (size for when, size in samples if start <= when <= stop), default=0
        )
    return found


def _memory(process: subprocess.Popen[Any], timeout_s: float) -> Iterator[tuple[float, int]]:
    """Yield times and resident bytes of the session of a process until it ends."""
    began = time.monotonic()
    while process.poll() is None:
        yield time.monotonic(), session_rss(process.pid)
        if time.monotonic() - began > timeout_s:
            os.killpg(process.pid, 9)
        time.sleep(SAMPLE_SECONDS)


def read_into_cache(path: Path) -> None:
    """Read all files of a directory, so that the page cache holds them."""
    for file in path.rglob("*"):
        if file.is_file():
            with file.open("rb", buffering=0) as opened:
                while opened.read(2**24):
                    pass


def prepare(options: argparse.Namespace) -> None:
    """Make the source and the formats that do not exist yet."""
    options.place.mkdir(parents=True, exist_ok=True)
    made = {"rows": (make_rows, options.rows), "pictures": (make_pictures, options.pictures)}
    for kind in KINDS:
        make, count = made[kind]
        if not Source(options.place, kind).table_path.exists():
            make(options.place, count)
    path = options.place / "formats.json"
    formats = json.loads(path.read_text()) if path.exists() else {}
    for kind in KINDS:
        for name in options.loaders:
            of = data_path(options.place, name, kind)
            if of.name in formats:
                continue
            shutil.rmtree(of, ignore_errors=True)
            found = run_apart("write", name, kind, options)
            print(f"{of.name}: {json.dumps(found)}", file=sys.stderr)
            if "error" not in found:
                formats[of.name] = found
                path.write_text(json.dumps(formats, indent=1) + "\n")


def check(options: argparse.Namespace) -> None:
    """Check an epoch of every loader, and save what came."""
    checks: dict[str, dict[str, Any]] = {kind: {} for kind in options.kinds}
    for kind in options.kinds:
        for name in options.loaders:
            checks[kind][name] = run_apart("check", name, kind, options)
            print(f"{kind} {name}: {json.dumps(checks[kind][name])}", flush=True)
    found = {"machine": describe_machine(options.place, None, PACKAGES), "checks": checks}
    print(save("loaders-check", found, directory=options.results_dir))


def measure(options: argparse.Namespace) -> None:
    """Measure all loaders in turn, print tables, and save the figures."""
    runs: dict[str, dict[str, list[Any]]] = {
        kind: {name: [] for name in options.loaders} for kind in options.kinds
    }
    for number in range(options.repeats):
        for kind in options.kinds:
            for name in options.loaders:
                read_into_cache(data_path(options.place, name, kind))
                found = run_apart("measure", name, kind, options)
                runs[kind][name].append(found)
                note = found.get("error") or "done"
                print(f"{number + 1}/{options.repeats} {kind} {name}: {note}", file=sys.stderr)
    formats = json.loads((options.place / "formats.json").read_text())
    result = {
        "machine": describe_machine(options.place, None, PACKAGES),
        "rows": Source(options.place, "rows").table.num_rows,
        "pictures": Source(options.place, "pictures").table.num_rows,
        "seconds": options.seconds,
        "formats": formats,
        "runs": runs,
        "facts": {name: dataclasses.asdict(FACTS[name]) for name in options.loaders},
    }
    for kind in options.kinds:
        print(table(kind, runs[kind], formats) + "\n")
    print(facts_table(options.loaders) + "\n")
    print(save("loaders", result, directory=options.results_dir))


def facts_table(names: Sequence[str]) -> str:
    """Return what each loader does and does not do, as a table in Markdown."""
    titles = [field.name for field in dataclasses.fields(Facts)]
    lines = [
        "| | " + " | ".join(title.replace("_", " ") for title in titles) + " |",
        "|---|" + "---|" * len(titles),
    ]
    for name in names:
        lines.append(f"| {name} | " + " | ".join(dataclasses.astuple(FACTS[name])) + " |")
    return "\n".join(lines)


def spread(values: Sequence[float | None], scale: float = 1.0, digits: int = 0) -> str:
    """Return the median of values, with half of their range in percent of it."""
    known = [value / scale for value in values if value is not None]
    if not known:
        return "-"
    median = statistics.median(known)
    half = (max(known) - min(known)) / 2 / median if median else 0.0
    return f"{median:,.{digits}f} ±{half:.0%}"


def table(kind: Kind, runs: dict[str, list[Any]], formats: dict[str, Any]) -> str:
    """Return the medians as a table in Markdown."""
    unit, scale, digits = ("k", 1e3, 1) if kind == "rows" else ("", 1.0, 0)
    lines = [
        f"| {kind} | {unit}/s, 0 workers | 1 | 2 | {unit}/CPU s, 0 | 2 | start, s "
        "| MB, 0 | MB, 2 | random k/s | MB on disk |",
        "|---|" + "---:|" * 10,
    ]
    for name, found in runs.items():
        sound = [run for run in found if "error" not in run]
        if not sound:
            lines.append(f"| {name} | {found[0]['error'] if found else ''} |" + " |" * 9)
            continue
        epochs = list(zip(*(run["epochs"] for run in sound), strict=True))
        rates = [spread([run["examples_per_s"] for run in of], scale, digits) for of in epochs]
        cores = [
            spread([run["examples_per_cpu_s"] for run in epochs[at]], scale, digits)
            for at in (0, -1)
        ]
        memory = [max(run["peak_bytes"] for run in epochs[at]) / 1e6 for at in (0, -1)]
        cells = [
            name,
            *(rates + ["-"] * 3)[:3],
            *cores,
            spread(
                [run["import_s"] + run["epochs"][0]["first_batch_s"] for run in sound], digits=2
            ),
            *(f"{size:,.0f}" for size in memory),
            spread([run.get("random_rows_per_s") for run in sound], 1e3, 1),
            f"{formats[f'{LOADERS[name].data}-{kind}']['bytes'] / 1e6:,.0f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _names(known: Sequence[str]) -> Any:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"no {unknown[0]}: there are {', '.join(known)}")
        return names

    return parse


def main() -> None:
    """Read the command line, and do the task."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("task", choices=["prepare", "check", "measure", "write"])
    parser.add_argument("--place", type=Path, required=True, help="directory of all files")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pictures", type=int, default=4_000)
    parser.add_argument("--loaders", type=_names([*LOADERS]), default=[*LOADERS], metavar="A,B")
    parser.add_argument("--kinds", type=_names(KINDS), default=KINDS, metavar="A,B")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each epoch")
    parser.add_argument("--results-dir", type=Path, default=RESULTS)
    parser.add_argument("--run-here", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.place = options.place.resolve()
    if options.run_here:
        name, kind = options.run_here
        print(json.dumps(run_here(options.task, name, kind, options.place, options.seconds)))
    else:
        {"prepare": prepare, "check": check, "measure": measure}[options.task](options)


if __name__ == "__main__":
    main()
