r"""Steps as one preprocessing function of TFT operations.

What they mean for values that are none, or not usual (the tests hold every line):

* A missing value stays missing, but `impute` fills it; `one_hot` makes it zeros, `embed` too.
* NaN counts as missing for `impute` and `drop_null`, and no statistic takes in NaN or infinities.
  Elsewhere NaN stays NaN; `bucketize` makes it missing.
* Statistics of a column without any value in the split they are made of: mean, median and most
  frequent number are 0, the most frequent text is empty, and its vocabulary holds nothing.
* `zscore` and `minmax` of a constant column are 0.
* Whole numbers become float64 where they are calculated with, so beyond 2^53 they are rounded.
* A category that the vocabulary has not (unseen, too rare, the empty text) gets an index above it,
  by hash if there are several out-of-vocabulary buckets; without any, -1.
* A vocabulary file has a category a line: there a line break is ``\n``, a carriage return ``\r``
  and a backslash two of them.
* `impute` of whole numbers keeps them whole: the mean is rounded where it is written, not where
  another step follows.

Medians and the boundaries of `bucketize` with a number of buckets come from quantile sketches,
which depend in their last digits on how the data was cut among workers. All else does not.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from beam_tfrecord.errors import UsageError
from beam_tfrecord.preprocess import category_steps, number_steps
from beam_tfrecord.preprocess.columns import Column
from beam_tfrecord.preprocess.ports import Port
from beam_tfrecord.preprocess.steps import Step, by_column

PLAIN_OUTPUTS = ("float32", "int64", "string")


@dataclasses.dataclass(frozen=True)
class Function:
    """A preprocessing function for TFT, from steps.

    Attributes:
        steps: The steps.
        ports: The inputs; those that no step names pass unchanged.
    """

    steps: tuple[Step, ...]
    ports: tuple[Port, ...]

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the transformed columns, and the others as they are written."""
        chains = by_column(self.steps)
        return {
            port.name: _output(inputs[port.name])
            if port.name not in chains
            else _transformed(inputs[port.name], _file_name(port.name, i), chains[port.name])
            for i, port in enumerate(self.ports)
        }


@dataclasses.dataclass(frozen=True)
class UserFunction:
    """A user's preprocessing function, whose outputs get the types that an Example holds.

    Attributes:
        function: From tensors by name to tensors by name.
        outputs: Names of what it returned when it was traced last.
        unchanged: Those that are inputs of the same name as they were.
    """

    function: Callable[[dict[str, Any]], Mapping[str, Any]]
    outputs: set[str] = dataclasses.field(default_factory=set)
    unchanged: set[str] = dataclasses.field(default_factory=set)

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return its outputs as int64, float32 or string.

        Raises:
            UsageError: It raises, or returns no dict of tensors.
        """
        try:
            returned = self.function(dict(inputs))
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            # The place in the user's own code, not where a library found fault with it.
            own = [frame for frame in frames if "site-packages" not in frame.filename]
            where = (own or frames)[-1]
            raise UsageError(
                f"the preprocessing function raised {type(error).__name__}: {error} "
                f"({where.filename}:{where.lineno})"
            ) from error
        if not isinstance(returned, Mapping) or not returned:
            raise UsageError(
                f"the preprocessing function returned {returned!r:.60}: give tensors by name"
            )
        self.outputs.update(returned)
        self.unchanged.update(name for name in returned if returned[name] is inputs.get(name))
        return {name: _output(value) for name, value in returned.items()}


def _output(tensor: Any) -> Any:
    """Return a tensor in a type that an Example holds."""
    import tensorflow as tf

    if tensor.dtype.name in PLAIN_OUTPUTS:
        return tensor
    return tf.cast(tensor, tf.float32 if tensor.dtype.is_floating else tf.int64)


def _file_name(column: str, position: int) -> str:
    """Return the name of a column's vocabulary: its own where TensorFlow takes it as a name."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", column):
        return column
    return f"column_{position}_{re.sub(r'[^A-Za-z0-9_.-]', '_', column)}"


def _transformed(tensor: Any, name: str, steps: Sequence[Step]) -> Any:
    column = Column(tensor)
    files = 0
    for step in steps:
        # Two steps of one column that make a vocabulary each need a file each.
        file = name if not files else f"{name}_{files + 1}"
        column = _STEPS[step.op](column, step.options, file)
        files += step.op in ("vocabulary", "one_hot")
    return _output(column.tensor)


_STEPS: dict[str, Callable[[Column, Mapping[str, Any], str], Column]] = {
    "impute": number_steps.impute,
    "zscore": number_steps.zscore,
    "minmax": number_steps.minmax,
    "bucketize": number_steps.bucketize,
    "one_hot": category_steps.one_hot,
    "vocabulary": category_steps.vocabulary,
    "embed": category_steps.embed,
    "hash": category_steps.hash_buckets,
    "clip": number_steps.clip,
    "log1p": number_steps.log1p,
}


def trace(function: UserFunction, ports: Sequence[Port]) -> None:
    """Call a user's function as TFT will, on tensors without values.

    Raises:
        UsageError: It raises.
    """
    import tensorflow as tf
    from tensorflow_transform import impl_helper

    specs = {
        port.name: tf.TensorSpec([None], port.dtype)
        if port.is_dense
        else tf.SparseTensorSpec([None, None], port.dtype)
        for port in ports
    }
    # Vocabularies leave files where they will be, long before they are made.
    with tempfile.TemporaryDirectory(prefix="beam-tfrecord-") as place:
        impl_helper.trace_preprocessing_function(function, specs, False, place)


def used_columns(steps: Sequence[Step]) -> frozenset[str]:
    """Return the columns whose values TensorFlow has to see."""
    return frozenset(by_column(steps))


def text_columns(steps: Sequence[Step]) -> frozenset[str]:
    """Return the columns that are text, or may be, where no row has a value to tell."""
    ops = ("vocabulary", "one_hot", "hash")
    return frozenset(
        name
        for name, chain in by_column(steps).items()
        if chain[0].op in ops or isinstance(chain[0].options.get("value"), str)
    )
