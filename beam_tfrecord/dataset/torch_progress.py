"""`Progress`: which epoch comes next, for all processes of a PyTorch ``DataLoader``."""

from __future__ import annotations

from typing import Any

import torch

from beam_tfrecord.errors import UsageError

_EPOCH_BITS = 32
_MAX_KEY = 2**31 - 1
# So many iterations may be under way at a time.
_SLOTS = 16
# The epoch that begins at another step than 0, and this step, lie before the slots.
_START = 2


class Progress:
    """Says which epoch comes next, in memory that DataLoader's worker processes share.

    A ``DataLoader`` does not say when an epoch begins, and its persistent workers do not see
    changes of the main process. So the workers agree on the epoch themselves: each slot of the
    memory has the key of an iteration and the epoch after the one that the iteration reads. The
    first worker of an iteration takes the next epoch. Two that begin at the same time see the same
    slots and write the same. So there is no lock.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._shared = torch.zeros(_START + _SLOTS, dtype=torch.int64).share_memory_()
        self.position = (0, 0)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        # Only workers get the memory itself. A copy shares another one with its own workers.
        self._shared.share_memory_()

    @property
    def _slots(self) -> Any:
        return self._shared.numpy()[_START:]

    @property
    def is_of_workers(self) -> bool:
        """Whether the epoch that began last is read by worker processes."""
        slots = self._slots
        epochs = slots % 2**_EPOCH_BITS
        return bool((slots[epochs == epochs.max()] >> _EPOCH_BITS).any())

    def begin(self, iteration: tuple[int, int] | None = None) -> tuple[int, int]:
        """Return the epoch that an iteration reads, and its first step."""
        key = 0 if iteration is None else hash(iteration) % _MAX_KEY + 1
        slots = self._slots.copy()
        epochs = slots % 2**_EPOCH_BITS
        own = epochs[slots >> _EPOCH_BITS == key]
        if key and len(own):
            epoch = int(own.max()) - 1
        else:
            epoch = int(epochs.max())
            self._slots[epochs.argmin()] = key << _EPOCH_BITS | epoch + 1
        self.position = (epoch, self._first_step(epoch))
        return self.position

    @property
    def next(self) -> tuple[int, int]:
        """The epoch and the step at which the next iteration begins."""
        epoch = int((self._slots % 2**_EPOCH_BITS).max())
        return epoch, self._first_step(epoch)

    def _first_step(self, epoch: int) -> int:
        start_epoch, start_step = self._shared[:_START].tolist()
        return int(start_step) if epoch == start_epoch else 0

    def reset(self, epoch: int, step: int) -> None:
        """Let the next iteration begin at a step of an epoch."""
        if step >= self._steps:
            epoch, step = epoch + 1, 0
        if not 0 <= epoch < 2**_EPOCH_BITS - 1:
            raise UsageError(f"epoch {epoch} is out of range: count from 0")
        self._shared[:_START] = torch.tensor([epoch, step])
        self._slots[:] = epoch
        self.position = (epoch, step)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration read an epoch, from the step at which `reset` lets it begin."""
        next_epoch, step = self.next
        self.reset(epoch, step if epoch == next_epoch else 0)
