"""Periodic jobs keep their deadlines on a loaded Linux machine.

    with qfabric.Session(period_ms=40) as session:
        for k in session.periods():
            work(k)
"""

import json as _json
from contextlib import contextmanager as _contextmanager
from typing import NamedTuple as _NamedTuple

from . import _qfabric
from ._qfabric import Error, NoDaemon, Refused, SinkEnded, __version__
from .channels import Channels, transcoded
from .cpu import Cpu, Probe
from .delays import DelayRecorder
from .ecalls import ECalls
from .joint import Consent, JointContract, consent, consents, contracts, explain, forget_consent
from .ladder import Ladder, Step
from .mem import Allocation, Mem
from .metp import ClientConnection, Connection, Message, ServerConnection
from .stream import Stream

__all__ = [
    "Allocation",
    "Channels",
    "ClientConnection",
    "Connection",
    "Consent",
    "Cpu",
    "DelayRecorder",
    "ECalls",
    "Error",
    "Grant",
    "JointContract",
    "Ladder",
    "Mem",
    "Message",
    "Metric",
    "NoDaemon",
    "Overload",
    "Probe",
    "Refused",
    "ServerConnection",
    "Session",
    "SinkEnded",
    "Step",
    "Stream",
    "change_limits",
    "consent",
    "consents",
    "contracts",
    "explain",
    "find_profile",
    "forget_consent",
    "give_back",
    "limits",
    "profile_name",
    "set_limits",
    "status",
    "store_profile",
    "suggest",
    "transcoded",
    "__version__",
]


class Grant(_NamedTuple):
    """The reservation in force, the error of the last job that the daemon processed (ns), and the number of jobs processed."""

    budget_ns: int
    period_ns: int
    error_ns: int
    jobs: int

    @property
    def bandwidth(self):
        """Fraction of one CPU."""
        return self.budget_ns / self.period_ns if self.period_ns else 0.0


class Overload(_NamedTuple):
    """A task requests more than it is granted. Both shares in CPUs, from the last short job."""

    wanted: float
    granted: float

    @property
    def part(self):
        """Target cost of a job, relative to its present cost."""
        return self.granted / self.wanted


class Metric(_NamedTuple):
    """A metric with its utility function, for `Session(metrics=[...])`.

    `utility` and `cpu` are E-code: a function from a level to its utility (0 to 1,000,000,000), and one to the CPU time
    that it takes, in millionths of one CPU. Neither may decrease.
    """

    name: str
    min: int
    max: int
    utility: str
    cpu: str
    step: int = 1


class Session(_qfabric.NativeSession):
    """Periodic jobs of one thread under contract; ended by `with`, `end()` or the end of the thread."""

    _next = {}
    _on_overload = None
    _in_job = False
    _skipped = False

    def on_overload(self, tell):
        """Sets a callback: `tell(overload)` when an overload begins, `tell(None)` when it ends. `wait()` calls it.

        It begins when at least 8 of the last 16 jobs requested more than was granted, and ends when at most 2 did.
        """
        self._on_overload = tell

    def wait(self):
        """Sleeps until the next job's release; other Python threads run meanwhile. Returns the job's number."""
        k = super().wait()
        for news in self.overload_news() if self._on_overload else ():
            self._on_overload(news and Overload(*news))
        return k

    @property
    def overload(self):
        """The present overload; None if there is none."""
        now = self.overload_tuple()
        return now and Overload(*now)

    def save_energy(self):
        """Holds the deadlines at the lowest clock that suffices, until the contract ends.

        Returns a dict: `clock_part`, `clamped`, `limited`, and what this host lacks (`missing`); None without a daemon.
        """
        saving = self.save_energy_json()
        return saving and {"missing": [], **_json.loads(saving)}

    def expect_next(self, hint=None, *, interval=None, budget=None):
        """Sets the foresight for the next job; it is sent with the end of the current job."""
        self._next = {"hint": hint, "interval": interval, "budget": budget}

    def skip(self):
        """Skips the current job. Inside `job()` and `periods()` the skip takes effect when the block ends."""
        if self._in_job:
            self._skipped = True
        else:
            super().skip()

    def _end_job(self):
        known, self._next = self._next, {}
        skipped, self._skipped, self._in_job = self._skipped, False, False
        if skipped:
            super().skip()
        else:
            self.end_cycle(**known)

    @_contextmanager
    def job(self, hint=None, *, interval=None, budget=None, wait=True):
        """One job: waits for its release, sets its foresight, and marks its end."""
        k = self.wait() if wait else None
        self.begin(hint, interval=interval, budget=budget)
        self._in_job = True
        try:
            yield k
        finally:
            self._end_job()

    def periods(self, count=None):
        """Yields the number of each job at its release; each step ends the previous job. Endless without `count`."""
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
        """The grant that the daemon last published; all zero without a daemon."""
        return Grant(*self.grant_tuple())

    @property
    def quality(self):
        """Results so far, measured by the library: a dict with jobs, misses, in_target, …"""
        return _json.loads(self.quality_json())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


def status(socket=None):
    """The host as a dict: capacity, guaranteed, granted, applications."""
    return _json.loads(_qfabric.status_json(socket))


def suggest(costs_ns, period_ms, *, hints=(), **contract):
    """Suggests parameters from the computation times of a trial execution: a dict with predictor, max_bandwidth, class_a, class_b, …

    Needs at least 24 jobs. `contract` takes server_period_ms, max_bandwidth, controller, rho, early, late, recovery_jobs
    and deviation, like `Session`. A pure calculation, without a daemon. class_a, class_b and early are None if no budget
    can keep the promise of the class.
    """
    return _json.loads(_qfabric.suggest_json(list(costs_ns), period_ms, hints=list(hints), **contract))


def profile_name(program, **parameters):
    """The name of a profile: a program and the parameters on which its computation times depend, such as size and fps."""
    return ",".join([program, *(f"{name}={value}" for name, value in sorted(parameters.items()))])


def find_profile(program, **parameters):
    """The costs (ns) and hints of the stored profile of this program with these parameters, on this processor and kernel.

    None if there is none: probe the program then (`Cpu.probe_on`), and call `store_profile`. The result is an argument of
    `Session(profile=…)`. `qfabric probe` stores profiles, too.
    """
    return _qfabric.find_profile(profile_name(program, **parameters))


def store_profile(costs_ns, program, *, hints=(), **parameters):
    """Stores the computation times of a program with these parameters, for this processor and kernel; returns the file.

    `costs_ns` are the times of at least one job, such as `Probe.costs_ns`. Replaces an earlier profile with this key.
    """
    return _qfabric.store_profile(profile_name(program, **parameters), list(costs_ns), list(hints))


def limits(socket=None):
    """Limits set by the administrator, as a dict: capacity, levels, users, groups, default_user, counts."""
    return _json.loads(_qfabric.limits_json(socket))


def set_limits(limits, socket=None):
    """Replaces all limits until the daemon's next start or reload; a missing key gets its default.

    For root and the daemon's user. Returns the limits in force. `change_limits` keeps concurrent changes of other
    programs.
    """
    return _json.loads(_qfabric.set_limits_json(_json.dumps(limits), socket))


def change_limits(change, socket=None):
    """Changes some limits until the daemon's next start or reload: `{"users": {1000: 0.5}, "capacity": None}`.

    Missing keys stay unchanged, None removes a limit. For root and the daemon's user. Returns all limits in force.
    """
    return _json.loads(_qfabric.change_limits_json(_json.dumps(change), socket))


def give_back(claim, socket=None):
    """Gives back a loan that another host keeps for a task refused on this host (`Refused.offer`)."""
    _qfabric.give_back(claim, socket)
