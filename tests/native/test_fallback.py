"""What happens where the kernel was not built."""

from __future__ import annotations

import subprocess
import sys

from beam_tfrecord import native
from beam_tfrecord.native import _records, reference

WITHOUT_KERNEL = """
import sys, warnings
sys.modules["beam_tfrecord.native._records"] = None
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from beam_tfrecord import native
print(native.IS_NATIVE, native.crc32c(b"123456789") == 0xE3069283)
print([str(w.message).split(",")[0] for w in caught if w.category is RuntimeWarning])
"""


def test_the_reference_takes_over_with_one_warning() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_KERNEL], capture_output=True, text=True, check=True
    )
    assert ran.stdout.splitlines() == [
        "False True",
        "['the native kernel of beam_tfrecord is not built']",
    ]


def test_both_offer_the_same_functions() -> None:
    for name in reference.__all__:
        assert getattr(native, name) is getattr(_records, name)
