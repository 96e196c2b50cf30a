"""`load` needs NumPy, pyarrow, msgspec and isal: other packages cannot be imported here."""

import subprocess
import sys

import beam_tfrecord as bt

PROGRAM = """
import importlib.util, sys
FEW = {"beam_tfrecord", "numpy", "pyarrow", "msgspec", "isal", "dateutil", "pytz", "six"}

class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in FEW and top not in sys.stdlib_module_names and not top.startswith("_"):
            raise ModuleNotFoundError(top, name=top)

sys.meta_path.insert(0, Refuse())
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "apache_beam" else found(name)

import beam_tfrecord as bt
rows = bt.load(sys.argv[1], split="train[:50%]+train[50%:]")
assert rows.numpy()["id"].sum() == 4950
assert rows.take(rows.order(1).indices(0, 100)).num_rows == len(rows) == 100
assert rows[3]["id"] in range(100)
assert bt.load(sys.argv[1]).stats().splits["train"].rows == 100
assert bt.verify(sys.argv[1]).ok
try:
    bt.write
except ImportError as error:
    print(error)
"""


def test_reading_needs_four_packages_and_writing_says_what_it_lacks(tmp_path):
    bt.write({"id": list(range(100))}, tmp_path, splits="train=1")
    words = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == (
        "beam_tfrecord.write needs apache-beam, which is not installed: install beam-tfrecord "
        "without --no-deps\n"
    )
