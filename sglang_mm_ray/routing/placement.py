"""Where an image goes: weighted rendezvous hashing with a bounded load. No Ray, no clock, no threads.

Every worker draws a number from (key, worker); the best draw, scaled by the worker's capacity, is the
image's first choice, the second best its second, and so on (Thaler and Ravishankar 1998; weights as in
Schindelhauer and Schomaker 2005: `-ln(u) / capacity`, smallest wins). A worker that joins or leaves moves
only the keys that it wins or won. A worker that is full passes the image on (Mirrokni et al. 2018).

Work is counted in pixels, read plus written. Its true price differs between machines, so what workers report
corrects how much of it a worker is given, but never whose key it is: a preference that moved with the load
would find no warm cache.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["Placement", "route_key"]

_UINT64 = NDArray[np.uint64]
_FLOAT64 = NDArray[np.float64]

# How far a worker may be above the mean load before its keys go to their next choice.
_LOAD_FACTOR = 1.25
# How quickly the measured speed of a worker follows its last batches, and how far it may be from the mean:
# one odd batch must not banish a worker.
_SPEED_SMOOTHING = 0.2
_SPEED_RANGE = (0.1, 4.0)


def route_key(identity: bytes) -> int:
    """64 bits of an identity, evenly spread; for placing only, never for equality."""
    return int.from_bytes(hashlib.blake2b(identity, digest_size=8).digest(), "big")


def _mix(values: _UINT64) -> _UINT64:
    """SplitMix64's finaliser: every input bit reaches every output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: _UINT64 = values ^ (values >> np.uint64(31))
    return mixed


class Placement:
    """The live workers, what each has to do, and whose turn an image is.

    `window_px` is the work for each unit of capacity that a worker may hold before it counts as full even
    where the mean load is lower: enough to keep it busy, little enough that nobody waits long behind it.
    """

    def __init__(self, window_px: float) -> None:
        self._window_px = float(window_px)
        self._ids: list[str] = []
        self._slot: dict[str, int] = {}
        self._seed: _UINT64 = np.empty(0, np.uint64)
        self._capacity: _FLOAT64 = np.empty(0)
        self._load: _FLOAT64 = np.empty(0)
        self._rate: _FLOAT64 = np.empty(0)
        self._effective: _FLOAT64 = np.empty(0)
        self._total_load = 0.0
        self._total_capacity = 0.0

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, worker_id: str) -> bool:
        return worker_id in self._slot

    def join(self, worker_id: str, capacity: float) -> None:
        """Adds a worker; `capacity` is the number of threads that it computes with."""
        if worker_id in self._slot:
            raise ValueError(f"worker {worker_id} has joined already")
        if not capacity > 0:
            raise ValueError(f"the capacity of worker {worker_id} must be positive, not {capacity}")
        self._slot[worker_id] = len(self._ids)
        self._ids.append(worker_id)
        self._seed = np.append(self._seed, np.uint64(route_key(worker_id.encode())))
        self._capacity = np.append(self._capacity, float(capacity))
        self._load = np.append(self._load, 0.0)
        self._rate = np.append(self._rate, np.nan)
        self._weigh()

    def leave(self, worker_id: str) -> None:
        """Removes a worker with its load."""
        gone = self._slot.pop(worker_id)
        del self._ids[gone]
        self._slot = {name: slot for slot, name in enumerate(self._ids)}
        self._seed, self._capacity, self._load, self._rate = (
            np.delete(self._seed, gone),
            np.delete(self._capacity, gone),
            np.delete(self._load, gone),
            np.delete(self._rate, gone),
        )
        self._total_load = float(self._load.sum())
        self._weigh()

    def _weigh(self) -> None:
        known = self._rate[~np.isnan(self._rate)]
        mean = float(known.mean()) if known.size else 1.0
        speed = np.clip(np.nan_to_num(self._rate / mean, nan=1.0), *_SPEED_RANGE)
        self._effective = self._capacity * speed
        self._total_capacity = float(self._effective.sum())

    def add_load(self, worker_id: str, work_px: float) -> None:
        """Books work on a worker, or with a negative value takes it off."""
        slot = self._slot.get(worker_id)
        if slot is None:
            return
        before = self._load[slot]
        # Work is booked and taken off in floating point; a worker with nothing to do has exactly none.
        after = max(0.0, before + work_px)
        after = 0.0 if after < 1e-6 else after
        self._load[slot] = after
        self._total_load = max(0.0, self._total_load + float(after - before))

    def load_px(self, worker_id: str) -> float:
        """Work booked on a worker."""
        return float(self._load[self._slot[worker_id]])

    def window_px(self, worker_id: str) -> float:
        """Work that keeps a worker busy."""
        return float(self._effective[self._slot[worker_id]]) * self._window_px

    def observe(self, worker_id: str, work_px: float, busy_s: float) -> None:
        """Learns from a finished batch: its work and the thread-seconds that it took."""
        slot = self._slot.get(worker_id)
        if slot is None or busy_s <= 0 or work_px <= 0:
            return
        rate, old = work_px / busy_s, self._rate[slot]
        self._rate[slot] = rate if np.isnan(old) else old + _SPEED_SMOOTHING * (rate - old)
        self._weigh()

    def _draws(self, key: int) -> _FLOAT64:
        uniform = (_mix(self._seed ^ np.uint64(key)) >> np.uint64(11)).astype(np.float64)
        draws: _FLOAT64 = -np.log((uniform + 0.5) * 2.0**-53) / self._capacity
        return draws

    def preference(self, key: int) -> Iterator[str]:
        """All workers, first choice first, whatever their load."""
        for slot in np.argsort(self._draws(key), kind="stable"):
            yield self._ids[slot]

    def place(self, key: int, work_px: float, avoid: frozenset[str] = frozenset()) -> str | None:
        """The first worker of the key's preference that is not full; None if there is no worker at all.

        A worker is full if the work would take it over its window and over the mean load by a quarter. One
        with nothing to do is never full. `avoid` names workers to use only where there is no other.
        """
        if not self._ids:
            return None
        draws = self._draws(key)
        if avoid:
            others = [slot for slot, name in enumerate(self._ids) if name not in avoid]
            if others:
                masked = np.full_like(draws, np.inf)
                masked[others] = draws[others]
                draws = masked
        first = int(np.argmin(draws))
        mean = (self._total_load + work_px) / self._total_capacity
        per_capacity = max(self._window_px, _LOAD_FACTOR * mean)
        if self._load[first] == 0 or self._load[first] + work_px <= per_capacity * self._effective[first]:
            return self._ids[first]
        free = (self._load + work_px <= per_capacity * self._effective) | (self._load == 0)
        free &= np.isfinite(draws)
        if free.any():
            return self._ids[int(np.argmin(np.where(free, draws, np.inf)))]
        relative = np.where(np.isfinite(draws), self._load / self._effective, np.inf)
        return self._ids[int(np.argmin(relative))]
