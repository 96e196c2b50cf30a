"""What kind of Arrow type it is: questions that `pyarrow.types` leaves to several calls."""

from __future__ import annotations

import pyarrow as pa

from beam_tfrecord.features.tensors import TensorType


def bare_type(arrow: pa.DataType) -> pa.DataType:
    """Return the type of the values of dictionary and run-end encoded types."""
    while pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        arrow = arrow.value_type
    return arrow


def is_tensor(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is the canonical fixed-shape tensor."""
    return isinstance(arrow, pa.FixedShapeTensorType)


def is_numpy_tensor(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is the type of NumPy arrays, of any dtype and of varying shapes too."""
    return isinstance(arrow, TensorType)


def is_uuid(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is the canonical UUID type."""
    return isinstance(arrow, pa.UuidType)


def is_extension(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is an extension type."""
    return isinstance(arrow, pa.BaseExtensionType)


def is_list(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is one of the five list layouts (a map is not)."""
    return _is_varying_list(arrow) or pa.types.is_fixed_size_list(arrow)


def is_text(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is one of the three text layouts."""
    types = pa.types
    return bool(
        types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow)
    )


def is_binary(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is one of the binary layouts, fixed size included."""
    types = pa.types
    return bool(
        types.is_binary(arrow)
        or types.is_large_binary(arrow)
        or types.is_binary_view(arrow)
        or types.is_fixed_size_binary(arrow)
    )


def is_temporal(arrow: pa.DataType) -> bool:
    """Tell whether `arrow` is a date, time, timestamp or duration."""
    return pa.types.is_temporal(arrow) and not pa.types.is_interval(arrow)


def _is_varying_list(arrow: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(arrow)
        or types.is_large_list(arrow)
        or types.is_list_view(arrow)
        or types.is_large_list_view(arrow)
    )
