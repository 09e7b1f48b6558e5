"""Media over METP: QualMan's communication service (its section 6.4)."""

import json as _json
import socket as _socket
from types import SimpleNamespace as _Settings
from typing import NamedTuple as _NamedTuple

from ._qfabric import NativeMetp, NativeMetpServer


class Message(_NamedTuple):
    """A message that arrived. ``holes`` are the missing parts (begin, end), which are zero in ``data``."""

    number: int
    kind: str
    data: bytes
    holes: list
    late_by: float


def _settings(
    tls, host, service, partially_reliable, rate, largest_message, send_time, receive_time, streams=False, dscp=None
):
    return _Settings(
        tls=str(tls),
        host=host or _socket.gethostname(),
        service=service,
        partially_reliable=partially_reliable,
        rate=rate,
        largest_message=largest_message,
        send_time=send_time,
        receive_time=receive_time,
        streams=streams,
        dscp=dscp,
    )


class Connection:
    """One end of a connection. Several threads may use it. Closed at the end of a ``with`` block.

    Times are in seconds, rates in bits per second.
    """

    def __init__(self, native):
        self._native = native

    @property
    def peer(self):
        """The host at the other end, as its certificate names it."""
        return self._native.peer()

    def send(self, data, kind="other", deadline=None, within=5.0):
        """Sends a message; returns its number.

        ``kind`` is ``"I"``, ``"P"``, ``"B"``, ``"audio"`` or ``"other"``. In partially reliable mode ``deadline`` is the
        time until the last byte has arrived. Raises ``TimeoutError`` if the queue stayed full for ``within``.
        """
        return self._native.send(kind, bytes(data), deadline, within)

    def receive(self, within=5.0):
        """The next :class:`Message`, or None if none came."""
        received = self._native.receive(within)
        return Message(*received) if received else None

    def set_partially_reliable(self, on):
        """Switches between deadlines first and every byte arrives, while messages flow."""
        self._native.set_partially_reliable(on)

    def set_rate(self, rate):
        """The rate at which this side wants to send."""
        self._native.set_rate(rate)

    def reserve(self, interface, rate, period, socket=None):
        """Reserves ``rate`` on an interface of this host for this connection; returns the reserved rate.

        ``period`` is the time between two frames. The reservation ends with the connection.
        """
        return self._native.reserve(interface, rate, period, socket)

    def record_delays(self, file, sizes):
        """Keeps the stored profile of delays in ``file`` fresh by the messages of this side while its rate is reserved.

        ``qfabric net profile`` makes the file. ``sizes`` are the sizes of messages for which it is renewed, such as the
        largest I, P and B frame; a message counts for the smallest size that holds it, if it has three quarters of it.
        """
        self._native.record_delays(file, list(sizes))

    def rebind(self, local, carrier=0):
        """Changes the own address of a carrier to ``ADDRESS:PORT`` while messages flow; the other side follows.

        Only on the side that opened the connection.
        """
        self._native.rebind(local, carrier)

    def event(self, within=0.0):
        """The next event as a dictionary, or None if none came.

        ``event`` is ``"outcome"`` (of a message that this side sent), ``"skipped"``, ``"mode_changed"``,
        ``"peer_finished"``, ``"carrier_attached"``, ``"carrier_lost"`` or ``"revoked"``. Of events that nobody takes,
        the connection keeps the last 1,024.
        """
        found = self._native.event_json(within)
        return _json.loads(found) if found else None

    def flush(self, within=5.0):
        """Waits until each message that was sent has arrived or was given up."""
        self._native.flush(within)

    def finish(self):
        """This side sends no more messages; what is queued still arrives."""
        self._native.finish()

    def wait_for_end(self, within=5.0):
        """Waits for the end of the connection; returns its reason."""
        return self._native.wait_for_end(within)

    @property
    def statistics(self):
        """Counts since the begin, as a dictionary."""
        return _json.loads(self._native.statistics_json())

    def close(self):
        """Closes the connection; messages under way are lost."""
        self._native.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class ClientConnection(Connection):
    """A connection to a service at ``HOST:PORT``. Both hosts prove their identity.

    ``dscp`` (0 to 63) is the code point of all its packets. ``tls`` is the folder that ``qfabric channel issue`` wrote::

        with qfabric.ClientConnection("wall:7800", tls="./cam", service="film") as connection:
            connection.send(frame, kind="I", deadline=0.15)
    """

    def __init__(
        self,
        address,
        tls,
        host=None,
        service="metp",
        partially_reliable=False,
        rate=None,
        largest_message=None,
        send_time=None,
        receive_time=None,
        streams=False,
        dscp=None,
    ):
        times = (send_time, receive_time)
        settings = _settings(tls, host, service, partially_reliable, rate, largest_message, *times, streams, dscp)
        super().__init__(NativeMetp(address, settings))

    def replace_carrier(self, address, local=None, within=5.0):
        """Moves the connection to another address of the service, while messages flow."""
        return self._native.replace_carrier(address, local, within)


class ServerConnection:
    """A service that waits for clients on ``ADDRESS:PORT`` (port 0: any free port)."""

    def __init__(
        self,
        address,
        tls,
        host=None,
        service="metp",
        partially_reliable=False,
        rate=None,
        largest_message=None,
        send_time=None,
        receive_time=None,
    ):
        times = (send_time, receive_time)
        settings = _settings(tls, host, service, partially_reliable, rate, largest_message, *times)
        self._native = NativeMetpServer(address, settings)

    @property
    def address(self):
        """The address on which the service listens."""
        return self._native.address()

    def accept(self, within=5.0):
        """The next client's :class:`Connection`, or None if none came."""
        native = self._native.accept(within)
        return Connection(native) if native else None

    def close(self):
        """Accepts no more clients; connections stay."""
        self._native.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
