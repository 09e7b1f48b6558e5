"""Delays of a program's own messages, which keep a stored profile of delays fresh."""

from . import _qfabric


class DelayRecorder:
    """Renews the profile of delays in ``file`` by the messages of one stream. Needs no daemon.

    ::

        recorder = qfabric.DelayRecorder(file, message=60_000, rate=5_000_000)
        recorder.acknowledged(58_000, round_trip_ms=21)

    ``qfabric net profile HOST`` makes the profile and names its file; without one, ``ValueError`` is raised.
    ``message`` is the size of the stream's largest message in bytes, ``rate`` the stream's granted rate in bits per
    second, with headers. After each 100 messages the profile is written, and ``qfabric net stream add --measured``
    uses it. Messages below three quarters of the largest size do not count. One thread at a time may use it.
    """

    def __init__(self, file, message, rate):
        self._native = _qfabric.NativeDelayRecorder(file, message, rate)

    def acknowledged(self, size, round_trip_ms):
        """A message of ``size`` bytes was acknowledged as a whole, ``round_trip_ms`` after its first byte was sent.
        Returns whether the profile was written."""
        return self._native.acknowledged(size, round_trip_ms)

    def lost(self, size):
        """A message was not acknowledged in time. Returns whether the profile was written."""
        return self._native.lost(size)

    def shortest_round_trip(self, ms):
        """The shortest recent round trip of small packets: the part of the delay that the network causes. It replaces
        the one of the profile. 0 (not measured yet) changes nothing."""
        self._native.shortest_round_trip(ms)

    def change_rate(self, rate):
        """The link grants the stream another rate now: earlier delays do not count for it."""
        self._native.change_rate(rate)
