"""Pictures cut, lengthened, flipped and of other chunks, judged against TensorFlow and Pillow."""

from __future__ import annotations

from typing import Any

from tests.images.picture_zoo import zoo
from tests.images.zoo_judges import damage, judged

_AT_ONCE = 1000
_MOST_MISSED = 0.04


def prove(*, pictures: int = 50_000, seed: int = 0) -> dict[str, Any]:
    """Return how pictures are judged; raise where the decode check lets too much through.

    The header check does not read coded pixels, so what is damaged there it lets through.
    """
    kinds = {
        check: [judged(data, check) for data in zoo().values()] for check in ("header", "decode")
    }
    found: dict[str, dict[str, int]] = {check: {} for check in kinds}
    missed: dict[str, int] = {}
    for start in range(0, pictures, _AT_ONCE):
        part = damage(min(_AT_ONCE, pictures - start), seed + start)
        for check, counts in part["counts"].items():
            for what, number in counts.items():
                found[check][what] = found[check].get(what, 0) + number
        for check, name, _ in part["missed"]:
            if check == "decode":
                missed[name] = missed.get(name, 0) + 1
        print(f"{start + _AT_ONCE:,} pictures: {found}", flush=True)
    # Pillow decodes PNGs of rare structures, such as with two palettes, and some damaged GIFs.
    if sum(missed.values()) > _MOST_MISSED * pictures:
        raise SystemExit(f"pictures that TensorFlow refuses are not counted: {missed}")
    return {
        "zoo": {
            check: {
                "pictures": len(verdicts),
                "rejected": sum(verdict.said == "rejected" for verdict in verdicts),
                "counted": sum(verdict.said == "counted" for verdict in verdicts),
                "false alarms": sum(verdict.is_false_alarm for verdict in verdicts),
            }
            for check, verdicts in kinds.items()
        },
        "damaged": found,
        "missed by the decode check, by picture": missed,
    }
