"""QualMan's programming interface to the processor (its section 6.4): probe, reserve, start, yield, free."""

import time as _time
from typing import NamedTuple as _NamedTuple

from .joint import identity


class Probe(_NamedTuple):
    """Result of a measurement: mean computation time / period, and the costs of the iterations in ns."""

    utilisation: float
    costs_ns: list


class Cpu:
    """QualMan's interface to the processor. Belongs to the thread that uses it.

        with qfabric.Cpu(period_ms=40, service_ms=10) as cpu:  # reserves here, releases at the end
            while playing:
                frame()
                cpu.yield_now()  # ends the iteration, sleeps until the next one is due

    The reserved utilisation is both the guaranteed and the largest bandwidth. Without `service_ms` there is no
    reservation on entry: call `probe_on`, run some iterations, call `probe_off`, then `reserve`.
    """

    def __init__(self, period_ms=None, service_ms=None, *, name="cpu", socket=None):
        if service_ms is not None and period_ms is None:
            raise ValueError(f"service_ms is {service_ms} without a period; pass period_ms as well")
        self._wish = (period_ms, service_ms)
        self._name, self._socket = name, socket
        self._session, self._costs = None, None

    def probe_on(self, period_ms):
        """Starts to measure iterations of `period_ms`, without a reservation. Ends a running measurement or reservation."""
        self.free()
        self._session = self._begin(period_ms, alone=True)
        self._costs, self._period_ms = [], period_ms

    def probe_off(self):
        """Ends the measurement. The result is empty if `probe_on` was not called."""
        costs, self._costs = self._costs, None
        if costs is None:
            return Probe(0.0, [])
        self.free()
        return Probe(sum(costs) / len(costs) / (self._period_ms * 1e6) if costs else 0.0, costs)

    def reserve(self, utilisation, period_ms, *, contract=None):
        """Reserves `utilisation` of one CPU in every period for the calling thread. Ends a running measurement or
        reservation. `Refused` names the free capacity and its holders. With a joint `contract` (a `JointContract`, or the
        identity of one, on any of its hosts), the share comes from it; the part beyond it comes from the free capacity."""
        self.free()
        share = {"cls": "B", "guaranteed": utilisation, "max_bandwidth": utilisation, "claim": identity(contract)}
        self._session = self._begin(period_ms, socket=self._socket, **share)

    def start(self):
        """Begins the first iteration now; this time is the origin of the grid of releases."""
        if self._session is not None:
            self._session.begin()

    def yield_now(self):
        """Ends an iteration and sleeps until the next release. Without reservation and measurement, yields the CPU once."""
        if self._session is None:
            return _time.sleep(0)
        cost_ns = self._session.end_cycle()
        if self._costs is not None:
            self._costs.append(cost_ns)
        self._session.wait()

    def free(self):
        """Ends the reservation. A second call has no effect."""
        session, self._session, self._costs = self._session, None, None
        if session is not None:
            session.end()

    @property
    def session(self):
        """The session behind the reservation; None without one."""
        return self._session if self._costs is None else None

    def _begin(self, period_ms, **options):
        from . import Session

        session = Session(period_ms, name=self._name, **options)
        session.begin()
        return session

    def __enter__(self):
        period_ms, service_ms = self._wish
        if service_ms is not None:
            self.reserve(service_ms / period_ms, period_ms)
        return self

    def __exit__(self, *_):
        self.free()
