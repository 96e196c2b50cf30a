"""A plan: what is asked for, fitted to the columns there are."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from beam_tfrecord.errors import UsageError
from beam_tfrecord.preprocess.fitted import Notes, bound_ports, load_notes, output_names
from beam_tfrecord.preprocess.functions import (
    Function,
    UserFunction,
    text_columns,
    trace,
    used_columns,
)
from beam_tfrecord.preprocess.ports import FLOAT32, FLOAT64, STRING, Port, ports_of
from beam_tfrecord.preprocess.request import Request
from beam_tfrecord.preprocess.step_checks import check_steps
from beam_tfrecord.preprocess.steps import dropped

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What workers need to know to fit a function, and to apply it.

    Attributes:
        notes: Of the function.
        function: What TFT traces; None for a function that was fitted before.
        fitted: Directory of that one.
        analysed: Columns that statistics are made of.
        fit: Split whose rows they are made of.
        raw_too: Keep raw values too.
    """

    notes: Notes
    function: Callable[..., Any] | None
    fitted: str | None
    analysed: frozenset[str]
    fit: str
    raw_too: bool

    def finished_notes(self) -> Notes:
        """Return the notes with what tracing showed of a user's function."""
        function = self.function
        if not isinstance(function, UserFunction):
            return self.notes
        return dataclasses.replace(
            self.notes,
            outputs=tuple(sorted(function.outputs)),
            unchanged=frozenset(function.unchanged),
        )


def make_plan(request: Request, schema: pa.Schema) -> Plan:
    """Return the plan for rows of a schema.

    Raises:
        UsageError: The steps, or the function, do not fit the columns.
    """
    if request.fitted is not None:
        notes = load_notes(request.fitted)
        ports = bound_ports(notes.ports, schema)
        return _plan(request, dataclasses.replace(notes, ports=ports), None, ())
    if request.function is not None:
        function = UserFunction(request.function)
        ports = _traced_ports(function, ports_of(schema))
        return _plan(request, Notes(ports), function, [port.name for port in ports])
    check_steps(request.steps, schema)
    ports = ports_of(schema, text=text_columns(request.steps))
    used = used_columns(request.steps)
    names = {port.name for port in ports}
    notes = Notes(
        ports,
        outputs=tuple(port.name for port in ports),
        unchanged=frozenset(names - used),
        scalars=frozenset(port.name for port in ports if not port.is_list),
        text=frozenset(
            port.name
            for port in ports
            if port.dtype == STRING and not pa.types.is_binary(schema.field(port.name).type)
        ),
        drop=dropped(request.steps),
        keeps_rest=True,
        steps=tuple(step.to_json() for step in request.steps),
    )
    output_names(notes, schema.names, notes.outputs or (), request.raw_too)
    return _plan(request, notes, Function(request.steps, ports), used)


def _traced_ports(function: UserFunction, ports: tuple[Port, ...]) -> tuple[Port, ...]:
    """Return the ports with numbers as a user's function takes them.

    Most functions take float64, which keeps times and amounts exact; some bring float32 of their
    own to it, which TensorFlow does not mix, and are given float32.

    Raises:
        UsageError: The function raises with both, or there is nothing it could take.
    """
    if not ports:
        raise UsageError("no column is of a type that TensorFlow takes: leave out transform")
    try:
        trace(function, ports)
    except UsageError as error:
        narrow = tuple(
            dataclasses.replace(port, dtype=FLOAT32) if port.dtype == FLOAT64 else port
            for port in ports
        )
        if narrow == ports or "float32" not in str(error):
            raise
        trace(function, narrow)
        _LOGGER.warning(
            "the preprocessing function takes float32 alone: numbers are rounded to it before "
            "statistics are made"
        )
        return narrow
    return ports


def _plan(
    request: Request,
    notes: Notes,
    function: Callable[..., Any] | None,
    analysed: Iterable[str],
) -> Plan:
    return Plan(notes, function, request.fitted, frozenset(analysed), request.fit, request.raw_too)
