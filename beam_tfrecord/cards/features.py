"""Describes features for the page: chart, numbers, and what is worth knowing about their values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from beam_tfrecord.base.text import cell, share_text
from beam_tfrecord.features.schema import Schema
from beam_tfrecord.loading.value_text import short_text
from beam_tfrecord.stats.charts import bars, histogram, quartile_strip
from beam_tfrecord.stats.statistics import Statistics, copies_lines, number_text
from beam_tfrecord.stats.thumbnails import label_text

_BARS, _LABEL_BARS = 8, 30
_TEXT_BARS = 50  # texts of more different values are shown by their lengths
_NOTABLE_DISTANCE = 0.1
_MOST_TABLES = 30  # of more features only those that differ have a table by split
BY_SPLIT = ("Missing", "Mean", "Std", "Min", "Median", "Max")

_Json = Mapping[str, Any]
_Counts = Sequence[Mapping[str, int]]


class Note(NamedTuple):
    """One line on what is worth knowing; it links to features, each with a detail."""

    kind: str
    text: str
    features: Sequence[tuple[_Json, str]] = ()


def feature_views(
    stats: Statistics, schema: Schema, label: str | None = None, *, is_drift: bool = False
) -> list[dict[str, Any]]:
    """Return what the page shows of each feature.

    `distance` is that of the split which differs most from the first; 0 if it may be chance. The
    figures are those of all splits together, or of the last one of a drift page.
    """
    splits, totals = stats.to_json()["splits"], stats.total_json()
    views, rows = [], sum([of["examples"] for of in splits.values()][-1 if is_drift else 0 :])
    for number, (name, total) in enumerate(totals.items()):
        parts = {split: of["features"][name] for split, of in splits.items()}
        first, *others = parts.values()
        found = others[-1] if is_drift else total
        distance = max((_distance(first, other) for other in others), default=0.0)
        most = _LABEL_BARS if name == label else _BARS
        chart, ends = _chart(total, [*parts.values()], schema[name].labels, most, is_drift)
        has_table = distance if len(totals) > _MOST_TABLES else is_drift or "mean" in found
        view = {
            "id": f"f{number}",
            "feature": schema[name],
            "found": found,
            "name": cell(name),
            "missing": share_text(found["nulls"] / max(rows, 1)),
            "chart": chart,
            "ends": ends,
            "examples": [value for value, _ in found.get("top", [])[:3]] if ends else [],
            "numbers": _numbers(found),
            "by_split": [(cell(split), _by_split(part)) for split, part in parts.items()],
            "has_table": others and has_table,
            "distance": distance,
        }
        views.append(view)
    return views


def _chart(
    found: _Json, parts: Sequence[_Json], classes: Sequence[str], most: int, is_drift: bool
) -> tuple[Markup, Sequence[str]]:
    """Return the chart of a feature, and the texts for the two ends of its axis, if it has one."""
    if "image" in found:
        images = [part.get("image", {"format": {}}) for part in parts]
        return _bars([image["format"] for image in images], most, is_drift), ()
    if "top" in found and found["distinct"] == 1:
        return Markup("<p>always {}").format(*_counts(found, classes)), ()
    if "top" in found:
        is_few = found["distinct"] <= (_TEXT_BARS if "length" in found else most)
        # Names and keys, which occur once, have no bars.
        if is_few and sum(count for _, count in found["top"]) >= 2 * found["distinct"]:
            is_number = "length" not in found and not classes
            counts = [_counts(part, classes) for part in parts]
            return _bars(counts, most, is_drift, is_ordered=is_number), ()
    lengths = "length" if "distinct" in found else "list_length"
    if lengths in found:
        return _histogram(found[lengths], [part[lengths] for part in parts], "length ")
    return _histogram(found, parts, "")


def _histogram(found: _Json, parts: Sequence[_Json], what: str) -> tuple[Markup, Sequence[str]]:
    if "min" not in found:
        return Markup("<p>no values" if "distinct" in found else "<p class=soft>nested values"), ()
    if "histogram" not in found:
        return Markup("<p>always {}{}").format(what, _shown(found["min"])), (what.strip(), "")
    edges = found["histogram"]["edges"]
    empty = {"counts": [0] * (len(edges) - 1)}
    counts = [part.get("histogram", empty)["counts"] for part in parts]
    drawn = histogram(counts, f"{what}from {edges[0]} to {edges[-1]}")
    values = [found["min"], *found["quartiles"], found["max"]]
    if isinstance(found["mean"], int | float):
        drawn += quartile_strip(edges[0], edges[-1], values)
    low = "≤ " if found["min"] < edges[0] else ""
    high = "≥ " if found["max"] > edges[-1] else ""
    return Markup(drawn), (f"{what}{low}{_shown(edges[0])}", f"{high}{_shown(edges[-1])}")


def _counts(part: _Json, classes: Sequence[str]) -> dict[str, int]:
    """Return the counts of the values of a split, by their text."""
    counts: dict[str, int] = {}
    for value, count in part.get("top", []):
        text = label_text(value, classes) if classes else short_text(value)
        counts[text] = counts.get(text, 0) + count
    return counts


def _bars(parts: _Counts, most: int, is_drift: bool, *, is_ordered: bool = False) -> Markup:
    """Return the bars of the most frequent texts of all parts, and one for the others.

    Beside a bar is the share in all parts, on a drift page those before and now.
    """
    totals = {text: sum(part.get(text, 0) for part in parts) for part in parts for text in part}
    names = sorted(totals, key=lambda text: (-totals[text], text))
    if is_ordered and len(names) <= most:
        names = sorted(names, key=lambda text: (len(text), text))
    groups = {text: [text] for text in (names if len(names) <= most else names[: most - 1])}
    if others := names[len(groups) :]:
        groups[f"{len(others):,} others"] = others
    sums = [sum(part.values()) or 1 for part in parts]
    rows = []
    for title, texts in groups.items():
        counts = [sum(part.get(text, 0) for text in texts) for part in parts]
        shares = [count / whole for count, whole in zip(counts, sums, strict=True)]
        shown = shares if is_drift else [sum(counts) / (sum(totals.values()) or 1)]
        rows.append((title, shares, " → ".join(map(share_text, shown))))
    return Markup(bars(rows))


def _shown(value: Any) -> str:
    """Return a number with commas from 10,000 on, so that years have none; times to seconds."""
    if type(value) is int and 10_000 <= abs(value) < 10**9:
        return f"{value:,}"
    text = number_text(value)
    return text.split(".")[0] if isinstance(value, str) else text


def _numbers(found: _Json) -> list[tuple[str, str]]:
    """Return the numbers of a feature with their titles, as two columns read row by row."""
    low, middle, high = found.get("quartiles", [None] * 3)
    about = "" if found.get("distinct_is_exact", True) else "≈ "
    is_time = isinstance(found.get("mean"), str)
    numbers = {
        "Mean": found.get("mean"),
        "Min": found.get("min"),
        "Std": None if is_time else found.get("std"),
        "25 %": low,
        "Distinct": f"{about}{_shown(found['distinct'])}" if "distinct" in found else None,
        "Median": middle,
        "Zeros": None if is_time else found.get("zeros"),
        "75 %": high,
        "Missing": found["nulls"],
        "Max": found.get("max"),
        "Length": _range(found.get("length")),
        "Items": _range(found.get("list_length")),
        "Width": _range(found.get("image", {}).get("width")),
        "Height": _range(found.get("image", {}).get("height")),
    }
    return [(title, _shown(value)) for title, value in numbers.items() if value is not None]


def _range(found: _Json | None) -> str | None:
    if not found or "min" not in found:
        return None
    low, high = _shown(found["min"]), _shown(found["max"])
    return low if low == high else f"{low} to {high}"


def _by_split(part: _Json) -> list[str]:
    numbers = dict(_numbers(part))
    return [numbers.get(title, "") for title in BY_SPLIT]


def _distribution(part: _Json, *, has_texts: bool) -> dict[Any, int]:
    """Return counts of the values of a feature: of texts, of bins, or of bins of lengths."""
    if has_texts:
        pairs: list[Any] = [(str(value), count) for value, count in part["top"]]
    else:
        bins = part.get("length", part).get("histogram", {"counts": []})["counts"]
        pairs = list(enumerate(bins))
    return {key: count for key, count in [*pairs, (None, part["nulls"])] if count}


def _distance(one: _Json, other: _Json) -> float:
    """Return the Jensen-Shannon distance of two distributions; 0 if it is small or chance."""
    # A split with many texts does not say all of them: then their lengths are compared.
    has_texts = all(part.get("top") and "length" in part for part in (one, other))
    first, second = (_distribution(part, has_texts=has_texts) for part in (one, other))
    n, m = sum(first.values()), sum(second.values())
    if not n or not m:
        return 0.0
    keys = first.keys() | second.keys()
    pairs = [(first.get(key, 0) / n, second.get(key, 0) / m) for key in keys]
    terms = [share * math.log2(2 * share / (p + q)) for p, q in pairs for share in (p, q) if share]
    distance = math.sqrt(max(math.fsum(terms) / 2, 0))
    freedom = max(len(keys) - 1, 1)
    chance = (freedom + 3 * math.sqrt(2 * freedom)) * (1 / n + 1 / m) / (8 * math.log(2))
    return distance if distance > max(_NOTABLE_DISTANCE, math.sqrt(chance)) else 0.0


def notes_on(stats: Statistics, views: Sequence[_Json], label: str | None) -> Iterator[Note]:
    """Yield what is worth knowing about the features, a line for each kind."""
    for name, split in stats.splits.items():
        yield from (Note("copies", f"{cell(name)}: {line}") for line in copies_lines(split))
    if (differing := differences(views)).features:
        yield differing
    found: dict[str, list[tuple[_Json, str]]] = {}
    count = stats.total.rows
    for view in views:
        of, seen, top = view["found"], view["feature"].observed, view["found"].get("top", [])
        is_label = view["feature"].name == label and len(top) > 1
        error = 0 if seen is None else seen.max_relative_error
        details = {
            "label": _balance(top) if is_label else "",
            "missing": view["missing"] if of["nulls"] else "",
            "NaN": f"{of['nan']:,}" if of.get("nan") else "",
            "infinite": f"{of['inf']:,}" if of.get("inf") else "",
            "constant": short_text(top[0][0]) or "empty text" if len(top) == 1 < count else "",
            "rounded": f"relative error ≤ {error:.1e}" if error else "",
        }
        for kind, detail in details.items():
            if detail:
                found.setdefault(kind, []).append((view, detail))
    yield from (Note(kind, "", features) for kind, features in found.items())


def differences(views: Sequence[_Json]) -> Note:
    """Return the features whose distribution differs between splits, the most different first."""
    found = sorted((view for view in views if view["distance"]), key=lambda view: -view["distance"])
    shown = [(view, f"{view['distance']:.2f}") for view in found]
    return Note("differs", "Jensen-Shannon distance, beyond chance:", shown)


def _balance(top: Sequence[tuple[Any, int]]) -> str:
    counts = [count for _, count in top]
    least, most = (share_text(count / sum(counts)) for count in (min(counts), max(counts)))
    return f"{len(counts):,} classes, the rarest {least}, the most frequent {most}"
