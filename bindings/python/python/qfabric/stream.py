"""Streams of packets: a rate out of an interface, promised by itself or drawn from a joint contract."""

from . import _qfabric
from .joint import identity


class Stream:
    """``size`` bytes of ``packets`` are sent out of ``interface`` in every period. Begins here; ended by ``end``, at the end
    of a ``with`` block, with this process, or with its contract.

    ::

        with qfabric.Stream("eth0", "flow udp,10.0.0.1:5000,10.0.0.2:6000", 40, 20_000, contract=contract):
            send_the_film()

    ``packets`` is ``"flow udp,FROM,TO"`` or ``"flow tcp,FROM,TO"`` with ADDRESS:PORT, ``"cgroup PATH"``, or
    ``"mark NUMBER"`` (only for administrators). ``size`` counts headers too. ``contract`` is a `JointContract`, or the
    identity of one, on any of its hosts. ``dscp`` (0 to 63) is the code point that all its packets get for routers and
    access points, whatever program sends them.
    """

    def __init__(self, interface, packets, period_ms, size, *, contract=None, dscp=None, socket=None):
        self._of, self._socket = interface, socket
        self._id = _qfabric.stream_begin(interface, packets, period_ms, size, identity(contract), dscp, socket)

    @property
    def id(self):
        """Its number on the interface; None after its end."""
        return self._id

    def set_dscp(self, dscp):
        """Gives all its packets another code point (DSCP, 0 to 63), while they flow."""
        _qfabric.stream_set_dscp(self._of, self._id, dscp, self._socket)

    def end(self):
        """Ends it; a second call does nothing. A rate that it drew is kept for the contract."""
        stream, self._id = self._id, None
        if stream is not None:
            _qfabric.stream_end(self._of, stream, self._socket)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()
