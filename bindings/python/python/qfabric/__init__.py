"""Periodic jobs keep their deadlines on a loaded Linux machine.

    with qfabric.Session(period_ms=40) as session:
        for k in session.periods():
            work(k)
"""

import json as _json
from contextlib import contextmanager as _contextmanager
from typing import NamedTuple as _NamedTuple

from . import _qfabric
from ._qfabric import Error, NoDaemon, Refused, __version__
from .channels import Channels
from .cpu import Cpu, Probe
from .ecalls import ECalls

__all__ = [
    "Channels",
    "Cpu",
    "ECalls",
    "Error",
    "Grant",
    "NoDaemon",
    "Probe",
    "Refused",
    "Session",
    "give_back",
    "limits",
    "set_limits",
    "status",
    "__version__",
]


class Grant(_NamedTuple):
    """What is in force: budget per server period, error of the last job taken (ns), jobs taken."""

    budget_ns: int
    period_ns: int
    error_ns: int
    jobs: int

    @property
    def bandwidth(self):
        """Fraction of one CPU."""
        return self.budget_ns / self.period_ns if self.period_ns else 0.0


class Session(_qfabric.NativeSession):
    """One thread's periodic jobs under contract; ended by `with`, `end()` or its thread's end."""

    _next = {}

    def expect_next(self, hint=None, *, interval=None, budget=None):
        """Says what is known of the next job; it travels with the current one's end."""
        self._next = {"hint": hint, "interval": interval, "budget": budget}

    def _end_job(self):
        known, self._next = self._next, {}
        self.end_cycle(**known)

    @_contextmanager
    def job(self, hint=None, *, interval=None, budget=None, wait=True):
        """One job: waits for its release, tells what is known of it, and marks its end."""
        k = self.wait() if wait else None
        self.begin(hint, interval=interval, budget=budget)
        try:
            yield k
        finally:
            self._end_job()

    def periods(self, count=None):
        """Numbers of the jobs, each at its release; a step ends the job before. Endless without `count`."""
        done = 0
        while count is None or done < count:
            k = self.wait()
            try:
                yield k
            finally:
                self._end_job()
            done += 1

    @property
    def grant(self):
        """What the daemon last published; all zero while alone."""
        return Grant(*self.grant_tuple())

    @property
    def quality(self):
        """What was achieved so far, as seen from here: a dict with jobs, misses, in_target, …"""
        return _json.loads(self.quality_json())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def status(socket=None):
    """The host as a dict: capacity, guaranteed, granted, applications."""
    return _json.loads(_qfabric.status_json(socket))


def limits(socket=None):
    """What the administrator allows, as a dict: capacity, levels, users, groups, default_user, counts."""
    return _json.loads(_qfabric.limits_json(socket))


def set_limits(limits, socket=None):
    """Allows something else until the daemon's next start or reload: all limits at once; a key left out has its default.

    For root and the user that the daemon runs as. Says what is in force.
    """
    return _json.loads(_qfabric.set_limits_json(_json.dumps(limits), socket))


def give_back(claim, socket=None):
    """What another host keeps for a task that the daemon of this one refused (`Refused.offer`) is not wanted."""
    _qfabric.give_back(claim, socket)
