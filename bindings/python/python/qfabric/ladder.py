"""The ladder of qualities: an encoder gives up quality while its rate is too low, and takes it back in reverse order."""

import time as _time
from typing import NamedTuple as _NamedTuple

from . import _qfabric


class Step(_NamedTuple):
    """A step of a ladder: the rungs before and after it (0 is the best), `"too slow"`, `"kept"` or `"asked for"`, and the
    reason with its numbers."""

    before: int
    after: int
    kind: str
    reason: str

    @property
    def is_lower(self):
        """Whether quality was given up."""
        return self.after > self.before


class Ladder:
    """Decides when an encoder gives up quality to keep its rate, and when it takes it back. Needs no daemon.

    ::

        ladder = qfabric.Ladder({"quality": [80, 60, 40, 20], "size": [640, 320]}, wanted=20)
        while encoding:
            rate = encode_for_a_second()
            if ladder.on_rate(rate):
                use(**ladder.levels)

    `dimensions` maps 1 to 8 names to levels, from the best to the minimum; the first dimension is given up first.
    `wanted` is in events per second. The keywords are thresholds and times: `lower_below` (0.15), `kept_above` (0.08),
    `dwell_ms`, `calm_ms`, `probe_ms`, `after_failure_ms`, `most_wait_ms`.
    """

    def __init__(self, dimensions, wanted, **terms):
        self._native = _qfabric.NativeLadder([(name, list(levels)) for name, levels in dimensions.items()], wanted, **terms)

    def on_rate(self, achieved, now=None):
        """States the rate that was achieved until `now`, such as once per second. Returns a `Step`, or None.

        `now` is in seconds of any clock that does not jump; without it, `time.monotonic()`. A rate that is no number or
        negative, and a report older than the last one, are ignored.
        """
        return _step(self._native.on_rate(achieved, _seconds(now)))

    def relieve(self, now=None):
        """States that the limit has ended, shown by something other than the rate, such as a shorter delay.

        The next raises come sooner, and each climbs half of the way. False, without effect: the ladder is at the best rung,
        or a raise failed a short time ago.
        """
        return self._native.relieve(_seconds(now))

    def move_to(self, rung, now=None):
        """Moves to a rung, such as one from before a restart. A rung below the minimum is the minimum."""
        return _step(self._native.move_to(rung, _seconds(now)))

    @property
    def rung(self):
        """The present rung; 0 is the best."""
        return self._native.rung()

    @property
    def lowest(self):
        """The rung at which every dimension is at its minimum."""
        return self._native.lowest()

    @property
    def levels(self):
        """The present level of each dimension, as a dict."""
        return dict(self._native.levels())


def _seconds(now):
    return _time.monotonic() if now is None else now


def _step(made):
    return made and Step(*made)
