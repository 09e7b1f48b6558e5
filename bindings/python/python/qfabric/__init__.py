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
    "Overload",
    "Probe",
    "Refused",
    "Session",
    "change_limits",
    "give_back",
    "limits",
    "set_limits",
    "status",
    "suggest",
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


class Overload(_NamedTuple):
    """The requests of a task exceed what it is granted: both in CPUs, of the last job that was short."""

    wanted: float
    granted: float

    @property
    def part(self):
        """What jobs should cost, relative to what they cost now."""
        return self.granted / self.wanted


class Session(_qfabric.NativeSession):
    """One thread's periodic jobs under contract; ended by `with`, `end()` or its thread's end."""

    _next = {}
    _told = None
    _in_job = False
    _left_out = False

    def on_overload(self, tell):
        """Calls `tell(overload)` when the requests begin to exceed the grants, `tell(None)` when that ends; in `wait()`.

        It begins when 8 of the last 16 jobs asked for more than they were granted, and ends when no more than 2 did.
        """
        self._told = tell

    def wait(self):
        """Sleeps until the next job's release; other Python threads run meanwhile. Says the job's number."""
        k = super().wait()
        for news in self.overload_news() if self._told else ():
            self._told(news and Overload(*news))
        return k

    @property
    def overload(self):
        """The overload now; None while the jobs get what they ask for."""
        now = self.overload_tuple()
        return now and Overload(*now)

    def expect_next(self, hint=None, *, interval=None, budget=None):
        """Says what is known of the next job; it travels with the current one's end."""
        self._next = {"hint": hint, "interval": interval, "budget": budget}

    def skip(self):
        """Leaves the current job out; the next one is the current one from now on, or when this step ends."""
        if self._in_job:
            self._left_out = True
        else:
            super().skip()

    def _end_job(self):
        known, self._next = self._next, {}
        left_out, self._left_out, self._in_job = self._left_out, False, False
        if left_out:
            super().skip()
        else:
            self.end_cycle(**known)

    @_contextmanager
    def job(self, hint=None, *, interval=None, budget=None, wait=True):
        """One job: waits for its release, tells what is known of it, and marks its end."""
        k = self.wait() if wait else None
        self.begin(hint, interval=interval, budget=budget)
        self._in_job = True
        try:
            yield k
        finally:
            self._end_job()

    def periods(self, count=None):
        """Numbers of the jobs, each at its release; a step ends the job before. Endless without `count`."""
        done = 0
        while count is None or done < count:
            k = self.wait()
            self._in_job = True
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


def suggest(costs_ns, period_ms, *, hints=(), **contract):
    """What the computation times of a trial execution suggest: a dict with predictor, max_bandwidth, class_a, class_b, …

    At least 24 jobs. `contract` takes server_period_ms, max_bandwidth, controller, rho, early, late, recovery_jobs and
    deviation as `Session` does. A calculation: no daemon is asked. class_a, class_b and early are None where no budget does.
    """
    return _json.loads(_qfabric.suggest_json(list(costs_ns), period_ms, hints=list(hints), **contract))


def limits(socket=None):
    """What the administrator allows, as a dict: capacity, levels, users, groups, default_user, counts."""
    return _json.loads(_qfabric.limits_json(socket))


def set_limits(limits, socket=None):
    """Replaces all limits until the daemon's next start or reload; a key left out has its default.

    For root and the user that the daemon runs as. Says what is in force. `change_limits` keeps what others change meanwhile.
    """
    return _json.loads(_qfabric.set_limits_json(_json.dumps(limits), socket))


def change_limits(change, socket=None):
    """Changes some limits until the daemon's next start or reload: `{"users": {1000: 0.5}, "capacity": None}`.

    What is left out stays, None removes a limit. For root and the user that the daemon runs as. Says all that is in force.
    """
    return _json.loads(_qfabric.change_limits_json(_json.dumps(change), socket))


def give_back(claim, socket=None):
    """What another host keeps for a task that the daemon of this one refused (`Refused.offer`) is not wanted."""
    _qfabric.give_back(claim, socket)
