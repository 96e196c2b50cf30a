"""Measures this package beside the tools that people would take instead, for rows and for images.

    scripts/bench/peers --place DIR [--rows 10000000] [--images 20000] [--tools ours,ray]
    scripts/bench/peers --table RESULT.json

Each tool of `peers.toml` has an environment of its own in DIR, and writes alone, in rounds of all
tools. Records are counted afterwards, and a wrong number is an error. DIR/state.json keeps all
figures: the same command continues what was stopped, and runs once more what failed.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import watch
from processes import descendants, pss_of
from saving import RESULTS, describe_machine, save
from tables import ROW_GROUP_ROWS, make_table
from work import bytes_below

HERE = Path(__file__).parent
FACTS = tomllib.loads((HERE / "peers.toml").read_text(encoding="utf-8"))
TOOLS: dict[str, dict[str, Any]] = FACTS["tools"]
FILES, SHARE = 10, 10  # slow tools get one row of so many
GIGA = 1e9
SET_CHILD_SUBREAPER = 36  # prctl(2)
PHOTOS = ("astronaut", "chelsea", "coffee", "rocket", "china", "flower")
SIDES = (224, 500)


def make_rows(folder: Path, rows: int, share: int = 1) -> None:
    """Write the first rows of each file: one column numbers them, one has nulls."""
    each = rows // FILES
    for seed in range(FILES):
        table = make_table(each, seed=seed)
        numbers = np.arange(seed * each, (seed + 1) * each)
        gaps = pa.array(table["f3"].to_numpy(), mask=numbers % 10 == 9)
        table = table.set_column(3, "f3", gaps).set_column(4, "i0", pa.array(numbers))
        path = folder / f"part-{seed}.parquet"
        pq.write_table(table.slice(0, each // share), path, row_group_size=ROW_GROUP_ROWS)


def make_images(folder: Path, count: int) -> None:
    """Write random crops of photographs, in a directory for each photograph."""
    import skimage
    import sklearn
    from PIL import Image

    places = [Path(it.__file__ or "").parent for it in (skimage, sklearn)]
    photos = {
        path.stem: Image.open(path).convert("RGB")
        for place in places
        for path in (*place.glob("data/*"), *place.glob("datasets/images/*"))
        if path.stem in PHOTOS
    }
    pick = random.Random(0)
    for number in range(count):
        photo = photos[name := pick.choice(PHOTOS)]
        width, height = (pick.randint(SIDES[0], min(SIDES[1], side)) for side in photo.size)
        left, top = pick.randint(0, photo.width - width), pick.randint(0, photo.height - height)
        path = folder / name / f"{number:06d}.jpg"
        path.parent.mkdir(exist_ok=True)
        crop = photo.crop((left, top, left + width, top + height))
        crop.save(path, "JPEG", quality=pick.randint(75, 95))


def made(place: Path, kind: str, count: int) -> Path:
    """Return the directory of an input, which is made once."""
    folder = place / f"{kind}-{count}"
    if not folder.exists():
        shutil.rmtree(partial := folder.with_suffix(".partial"), ignore_errors=True)
        partial.mkdir(parents=True)
        if kind == "images":
            make_images(partial, count)
        else:
            make_rows(partial, count, SHARE if kind == "fewer" else 1)
        partial.rename(folder)
    return folder


def install(tool: dict[str, Any], place: Path) -> dict[str, Any]:
    """Make the environment of a tool; return its Python and versions, or why there is none."""
    if not tool["needs"]:
        return {"python": sys.executable, "packages": "this source tree"}
    python, uv = str(place / "bin" / "python"), [sys.executable, "-m", "uv"]
    jars = ["mvn", "-B", "-q", "dependency:copy", f"-DoutputDirectory={place}/jars"]
    said = ""
    for command in (
        [*uv, "venv", "-q", "--clear", "--python", sys.executable, str(place)],
        [*uv, "pip", "install", "-q", "--python", python, *tool["needs"]],
        *([*jars, f"-Dartifact={jar}"] for jar in tool.get("jars", ())),
        [*uv, "pip", "freeze", "--python", python],
    ):
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=900)
        except (OSError, subprocess.TimeoutExpired) as why:
            return {"error": str(why)}
        if ended.returncode:
            lines = f"{ended.stderr}\n{ended.stdout}".splitlines()
            return {"error": next((line for line in lines if "error" in line.lower()), "")[:300]}
        said = ended.stdout
    return {"python": python, "packages": " ".join([*said.split(), *tool.get("jars", ())])}


def records_of(name: str, out: Path) -> int:
    """Count the records that a tool wrote."""
    if name == "hf":
        return sum(pq.ParquetFile(path).metadata.num_rows for path in out.glob("*.parquet"))
    if name == "img2dataset":
        stats = [json.loads(path.read_text()) for path in out.rglob("*_stats.json")]
        return sum(it["successes"] for it in stats)
    if name in ("mds", "litdata"):
        index = json.loads((out / "index.json").read_text())
        return sum(
            it.get("samples") or it.get("chunk_size")
            for it in next(index[key] for key in ("shards", "chunks") if key in index)
        )
    return sum(_framed(path.read_bytes()) for path in out.rglob("[!.]*") if path.is_file())


def _framed(data: bytes) -> int:
    """Count the records of a TFRecord file by their lengths; 0 if it is another file."""
    count = at = 0
    while at < len(data):
        at += 16 + int.from_bytes(data[at : at + 8], "little")
        count += 1
    return count if at == len(data) else 0


def end_descendants() -> None:
    """End all processes below this one, also those whose parents ended before."""
    while below := descendants(os.getpid()):
        for place, _ in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(place.name), signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def run(name: str, python: str, source: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Run a tool once in an empty directory, and return what it took and wrote."""
    shutil.rmtree(work := options.place / "run", ignore_errors=True)
    out, temporary = work / "out", work / "tmp"
    out.mkdir(parents=True)
    temporary.mkdir()
    kind = source.name.partition("-")[0].replace("fewer", "rows")
    words = TOOLS[name].get("command") or [str(HERE / "peer_jobs.py"), name, kind, "FROM", "TO"]
    words = [word.replace("FROM", str(source)).replace("TO", str(out)) for word in words]
    places = "TMPDIR SPARK_LOCAL_DIRS RAY_TMPDIR HF_HOME DATA_OPTIMIZER_CACHE_FOLDER"
    paths = [str(HERE), *([] if TOOLS[name]["needs"] else [str(HERE.parents[1])])]
    environment = os.environ | dict.fromkeys(places.split(), str(temporary))
    environment |= {"HF_HUB_OFFLINE": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment["PATH"] = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    peak, ticks, before = 0, dict[str, int](), os.times()

    def look(_: int) -> None:
        nonlocal peak
        below = descendants(os.getpid())
        peak = max(peak, pss_of(below))
        # A parent that ignores how its children end does not get their times.
        ticks.update((place.name, sum(map(int, fields[11:13]))) for place, fields in below)

    try:
        seconds, _, error = watch(
            [python, *words], look, environment=environment, cwd=work, timeout=options.timeout
        )
    finally:
        end_descendants()
    after = os.times()
    reaped = sum(after[2:4]) - sum(before[2:4])
    cpu = max(reaped, sum(ticks.values()) / os.sysconf("SC_CLK_TCK"))
    found = {"seconds": seconds, "cpu_seconds": cpu, "peak_pss": peak, "error": error[:300]}
    if not error:
        try:
            found |= {"records": records_of(name, out), "output_bytes": bytes_below(out)}
        except (OSError, LookupError, ValueError, StopIteration) as why:
            found["error"] = f"no dataset: {why}"
    shutil.rmtree(work, ignore_errors=True)
    return found


def summary(runs: list[dict[str, Any]], rows: int, size: int) -> dict[str, Any]:
    """Return the figures of the runs of a tool, in the shape that `bar_chart.py` draws."""
    worked = [run for run in runs if not run["error"]]
    if not worked:
        none = {"median": None, "range": None}
        why = runs[-1]["error"] if runs else "not run"
        return {"rows": rows, "rows_per_second": none, "error": why}
    rates = [round(rows / run["seconds"], 1) for run in worked]
    return {
        "rows": rows,
        "rows_per_second": {"median": statistics.median(rates), "range": [min(rates), max(rates)]},
        "cpu_seconds_per_gb": statistics.median(run["cpu_seconds"] for run in worked) / size * GIGA,
        "peak_pss": max(run["peak_pss"] for run in worked),
        "output_bytes": worked[-1]["output_bytes"],
        "runs": runs,
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Make what is missing, run what was not run, and return all figures."""
    ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    kept = options.place / "state.json"
    state = json.loads(kept.read_text()) if kept.exists() else {"tools": {}, "runs": {}}

    def keep(name: str, said: str) -> None:
        print(f"{name}: {said}", file=sys.stderr, flush=True)
        kept.with_suffix(".part").write_text(json.dumps(state, indent=1))
        kept.with_suffix(".part").rename(kept)

    counts = {"rows": options.rows, "fewer": options.rows, "images": options.images}
    inputs = {kind: made(options.place, kind, count) for kind, count in counts.items()}
    counts["fewer"] //= SHARE
    for name in options.tools:
        if "packages" not in state["tools"].get(name, {}):
            state["tools"][name] = install(TOOLS[name], options.place / "env" / name)
            keep(name, state["tools"][name].get("error", "installed"))
    jobs = [
        (name, kind)
        for name in options.tools
        for kind in ("fewer" if TOOLS[name]["slow"] else "rows", "images")
        if (name, kind) != ("img2dataset", "fewer")
    ]
    end = time.monotonic() + 60 * options.minutes
    for turn in range(options.rounds):
        for name, kind in jobs:
            runs = state["runs"].setdefault(f"{name} {inputs[kind].name}", [])
            python = state["tools"][name].get("python")
            if python is None:
                runs[:] = [state["tools"][name]]
            elif time.monotonic() > end or (turn and runs and runs[0]["error"]):
                continue
            elif len(runs) <= turn or runs[turn]["error"]:
                for path in inputs[kind].rglob("*.*"):
                    path.read_bytes()  # into the page cache, for each tool alike
                found = run(name, python, inputs[kind], options)
                if found.get("records", counts[kind]) != counts[kind]:
                    found["error"] = f"wrote {found['records']} of {counts[kind]}"
                runs[turn : turn + 1] = [found]
                rate = f"{counts[kind] / found['seconds']:,.0f} a second"
                keep(f"{turn + 1}/{options.rounds} {name} {kind}", found["error"] or rate)
    cases: dict[str, Any] = {
        "rows": {"about": "10 columns of Parquet", "unit": "rows", "ways": {}},
        "images": {"about": "JPEG photographs", "unit": "images", "ways": {}},
    }
    sizes = {kind: bytes_below(folder) for kind, folder in inputs.items()}
    for name, kind in jobs:
        runs = state["runs"].get(f"{name} {inputs[kind].name}", [])
        figures = summary(runs, counts[kind], sizes[kind])
        cases[kind.replace("fewer", "rows")]["ways"][name] = figures
    packages = {name: tool.get("packages") for name, tool in state["tools"].items()}
    return {
        **FACTS,
        "machine": describe_machine(options.place, None),
        "settings": {key: getattr(options, key) for key in ("rows", "images", "rounds", "timeout")},
        "input_bytes": sizes,
        "packages": packages,
        "chart": {
            "title": "Rows and images per second of tools that write datasets",
            "caption": "Each case has a scale of its own. Starting counts.",
            "labels": {name: tool["label"] for name, tool in TOOLS.items()},
        },
        "cases": cases,
    }


def as_markdown(found: dict[str, Any]) -> str:
    """Return the tables of a result: figures, what each tool can, and what was not measured."""
    head = "/s | CPU s/GB | peak GB | GB written | "
    lines = [f"| | k rows{head}images{head}".rstrip(), f"|---{'|---:' * 8}|"]
    lacking = []
    for name, tool in found["tools"].items():
        cells = []
        for case, unit in (("rows", 1000), ("images", 1)):
            of = found["cases"][case]["ways"].get(name)
            if of is None or "error" in of:
                lacking += [f"- {tool['label']}, {case}: {of['error']}"] if of else []
                cells += [""] * 4
                continue
            cells += [f"{of['rows_per_second']['median'] / unit:,.0f}"]
            cells += [f"{of['cpu_seconds_per_gb']:,.0f}"]
            cells += [f"{of[key] / GIGA:.2f}" for key in ("peak_pss", "output_bytes")]
        star = "" if not tool["slow"] else " *"
        lines.append(f"| {tool['label']}{star} | {' | '.join(cells)} |")
    count, features = found["settings"]["rows"], found["features"]
    lines += ["", f"\\* {count // SHARE:,} rows instead of {count:,}", "", *lacking, ""]
    lines += [f"| | {' | '.join(features)} |", f"|---{'|---' * len(features)}|"]
    for tool in found["tools"].values():
        lines.append(f"| {tool['label']} | {' | '.join(tool['can'])} |")
    return "\n".join(lines)


def main() -> None:
    """Measure and save, or print the tables of a result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--place", type=Path, help="directory for all that is made; it is kept")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2, help="0 only prepares")
    parser.add_argument("--tools", default=list(TOOLS), type=lambda text: text.split(","))
    parser.add_argument("--timeout", type=float, default=600, help="seconds for one run")
    parser.add_argument("--minutes", type=float, default=75, help="after which no run starts")
    parser.add_argument("--results-dir", type=Path, default=RESULTS, help="where the JSON goes")
    parser.add_argument("--table", type=Path, metavar="RESULT", help="print the tables of a result")
    options = parser.parse_args()
    if options.table:
        print(as_markdown(json.loads(options.table.read_text(encoding="utf-8"))))
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what runs, too
    found = measure(options)
    print(as_markdown(found))
    print(save("peers", found, directory=options.results_dir))


if __name__ == "__main__":
    main()
