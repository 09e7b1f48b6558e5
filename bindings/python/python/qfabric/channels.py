"""Q-channels: events between applications on many hosts."""

import collections
import contextlib
import json
import select
import time
import weakref

from . import _qfabric

# Seconds until `poll` looks again while events wait for sinks without a handler: the first pause is short, because a
# part of a long event may have come, and each one is twice as long as the one before.
_FIRST_GLANCE = 0.0001
_GLANCE = 0.005
# Longest wait of one system call, in seconds.
_LONGEST = 3600


class Channels:
    """A connection for channels; everything opened with it ends when it ends.

    with qfabric.Channels() as channels:
        video = channels.create("video", "struct frame { int number; };")
        video.sink_subscribe(print)
        video.source_subscribe().submit({"number": 1})
        channels.poll(1)
    """

    def __init__(self, socket=None):
        self._native = _qfabric.NativeChannels(socket)
        self._open = []
        self._sinks = []
        #: Callback for decisions of resource managers, called by poll: {"channel", "attribute", "subject", "amount"}.
        #: "app.rate_milli" is thousandths of an event per second for the sinks of one host. An encoder that sends less
        #: loses no events, whereas pacing would hold events back. An amount of None: no longer decided.
        self.on_decided = None
        #: The last 256 other notices: refused events, members that ended, optional transcoders that failed.
        self.notices = collections.deque(maxlen=256)

    @property
    def host(self):
        """Name of this host on the network."""
        return self._native.host

    def fileno(self):
        """Descriptor that is readable while events wait, for select and event loops."""
        return self._native.fileno()

    def channels(self):
        """The channels of all hosts: a list of dicts."""
        return json.loads(self._native.list_json())

    def register(self, application_id, group_id, qos=None, parent=None, level=1):
        """Registers the application with a group; qos has ranges of metrics: {"frame_rate": (10, 25)}.

        The registration has report("app.position", 40_000_000), which reports a number to the policies of this host
        and of the hosts that feed the channel with the group's name, and leave().
        """
        ranges = [{"metric": metric, "min": low, "max": high} for metric, (low, high) in (qos or {}).items()]
        request = {
            "lease": 0,
            "application": application_id,
            "group": group_id,
            "parent": parent,
            "level": level,
            "qos": ranges,
        }
        return self._keep(self._native.register_json(json.dumps(request)))

    def create(self, name, formats="", order="time", pressure="drop-oldest"):
        """Creates a channel; formats has C structure declarations of its events."""
        return Channel(self, self._keep(self._native.create(name, formats, order, pressure)))

    def open(self, name):
        """Opens a channel that a host holds: NAME, or quality:NAME for its Q-channel."""
        return Channel(self, self._keep(self._native.open(name)))

    def poll(self, timeout=0.0):
        """Waits at most `timeout` seconds for events, and calls the handlers; returns the number of events.

        Raises SinkEnded once for each sink with a handler that has ended by itself."""
        until = time.monotonic() + timeout
        glance = 0.0
        while True:
            handled = sum(sink._handle_all() for sink in list(self._sinks)) + self._handle_notices()
            left = until - time.monotonic()
            if handled or left <= 0:
                return handled
            # What waits is for sinks without a handler, and keeps the descriptor readable.
            if glance > 0:
                time.sleep(min(left, glance))
            is_woken = self._wait(max(until - time.monotonic(), 0.0))
            glance = min(2 * glance or _FIRST_GLANCE, _GLANCE) if is_woken else 0.0

    def _wait(self, timeout):
        """Whether something came within `timeout` seconds. `select` would refuse descriptors from 1024 on."""
        poller = select.poll()
        poller.register(self, select.POLLIN)
        return bool(poller.poll(1000 * min(timeout, _LONGEST)))

    def _handle_notices(self):
        handled = 0
        while (text := self._native.next_notice_json()) is not None:
            notice = json.loads(text)
            if notice["kind"] == "decided" and self.on_decided is not None:
                self.on_decided(notice)
                handled += 1
            else:
                self.notices.append(notice)
        return handled

    def policies(self):
        """Policies of this host, with their decisions."""
        return json.loads(self._native.policies_json())

    def start_policy(self, kind, **terms):
        """Starts a policy, which runs until it is stopped: start_policy("roles", channel="video")."""
        return json.loads(self._native.start_policy_json(json.dumps({"kind": kind, **terms})))

    def stop_policy(self, name):
        """Stops a policy; its decisions about rates end."""
        self._native.stop_policy(name)

    def _keep(self, native):
        self._open.append(native)
        return native

    def _forget(self, native, sink=None):
        for members, member in ((self._open, native), (self._sinks, sink)):
            with contextlib.suppress(ValueError):
                members.remove(member)

    def close(self):
        """Closes everything that was opened with the connection."""
        for sink in self._sinks:
            sink._has_left = True
        self._sinks.clear()
        while self._open:
            self._open.pop().leave()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Channel:
    """An open channel."""

    def __init__(self, channels, native):
        self._channels = channels
        self._native = native

    @property
    def info(self):
        """The channel's types, members and filters: a dict."""
        return json.loads(self._native.info_json())

    def source_subscribe(self):
        """Joins the channel as a source."""
        return Source(self._channels, self._channels._keep(self._native.source()))

    def sink_subscribe(self, handler=None, types=(), attributes=None, capacity=256):
        """Joins the channel as a sink; poll() calls the handler with each event. Without a handler, call next()."""
        native = self._native.sink(list(types), json.dumps(attributes or {}), capacity)
        sink = Sink(self._channels, self._channels._keep(native), handler)
        if handler is not None:
            self._channels._sinks.append(sink)
        return sink

    def install(self, direction, name, code, parameters=None, to="here"):
        """Installs a filter, "in" or "out"; to: "here", "all", {"hosts": [...]} or {"group": name}."""
        self._native.install(direction, name, code, json.dumps(parameters or {}), json.dumps(to))

    def set_parameter(self, direction, name, parameter, value, to="here"):
        """Changes a parameter of a filter; the next event sees it."""
        self._native.set_parameter(direction, name, parameter, value, json.dumps(to))

    def leave(self):
        """Closes the channel."""
        self._native.leave()
        self._channels._forget(self._native)


def _json(fields, tail):
    """The fields of an event as JSON, with the bytes behind its structure as hexadecimal digits."""
    return json.dumps({**fields, "tail": bytes(tail).hex()} if tail else fields)


def transcoded(event):
    """The transcoders that the source applied to an event of a sink, in this order. They come from another process: a
    source may name what it did not apply."""
    return _qfabric.transcoded(json.dumps(event["attributes"]))


class Source:
    """A source of events."""

    def __init__(self, channels, native):
        self._channels = channels
        self._native = native
        self._transcoders = []

    def set_transcoders(self, *transcoders):
        """From now on, each event's tail passes through these transcoders before it is submitted, in the thread that
        submits; none: no transcoder. Each one is (name, function, mandatory): the function takes and returns bytes. If
        a mandatory one raises an exception, submit raises it; if an optional one does, the event is submitted without
        it, and `Channels.notices` tells why. Sinks ask `qfabric.transcoded(event)` which of them were applied.

        source.set_transcoders(("gray", to_gray, True), ("zlib", zlib.compress, False))
        """
        attribute = _qfabric.transcoder_attribute
        chain = [(attribute(name), name, function, mandatory) for name, function, mandatory in transcoders]
        if len({name for _, name, *_ in chain}) < len(chain):
            raise ValueError("a transcoder is twice in the chain; give it another name")
        self._transcoders = chain

    def _transcode(self, tail, attributes):
        """The tail after the transcoders, and the attributes with what was applied."""
        applied = {}
        for attribute, name, function, mandatory in self._transcoders:
            try:
                # A number is refused; `bytes(5)` would be five zeros.
                tail = bytes(memoryview(function(bytes(tail))))
            except Exception as error:
                if mandatory:
                    raise
                self._channels.notices.append({"kind": "transcoder failed", "transcoder": name, "why": repr(error)})
            else:
                applied[attribute] = len(applied) + 1
        return tail, {**(attributes or {}), **applied}

    def submit(self, fields, type=None, attributes=None, deadline=None, tail=b""):
        """Submits an event; deadline is in seconds from now; tail is the bytes behind the event's structure (1 MiB at most,
        structure included), which sinks receive as hexadecimal digits in fields["tail"]. Returns a dict with number,
        remote, local, filtered, dropped."""
        tail, attributes = self._transcode(tail, attributes)
        sent = self._native.submit_json(type, _json(fields, tail), json.dumps(attributes), deadline)
        return dict(zip(("number", "remote", "local", "filtered", "dropped"), sent))

    def submit_queued(self, fields, type=None, attributes=None, deadline=None, tail=b"", patience=1.0):
        """Submits an event without waiting for its answer. While a slow sink holds the channel up, the daemon keeps the
        event, and later events of this source wait behind it. At most 256 events, or 192 KiB, of the connection are
        without an answer; the call waits at most `patience` seconds for room and then raises Refused. Call `drain`
        before `leave`: events that still wait are lost with the source."""
        tail, attributes = self._transcode(tail, attributes)
        self._native.submit_queued_json(type, _json(fields, tail), json.dumps(attributes), deadline, patience)

    def drain(self, patience=1.0):
        """Waits at most `patience` seconds until all events of `submit_queued` have gone to the channel or were refused.
        False if some still wait."""
        return self._native.drain(patience)

    def leave(self):
        """Leaves the channel."""
        self._native.leave()
        self._channels._forget(self._native)


class Sink:
    """A sink of events."""

    def __init__(self, channels, native, handler):
        self._channels = weakref.ref(channels)  # the connection has the sink
        self._native = native
        self._handler = handler
        self._has_ended = False
        self._has_left = False

    def next(self, timeout=0.0):
        """The next event as a dict; None if none arrives within `timeout` seconds. Raises SinkEnded if the sink has ended
        by itself: its channel was closed, or the access list changed."""
        event = self._native.next_json(timeout)
        return None if event is None else json.loads(event)

    def __setitem__(self, name, value):
        self._native.set_attribute(name, value)

    def _handle_all(self):
        handled = 0
        try:
            while (event := self._take()) is not None:
                self._handler(event)
                handled += 1
        except _qfabric.SinkEnded:
            is_known, self._has_ended = self._has_ended, True
            if not is_known:
                raise
        return handled

    def _take(self):
        """The next event for the handler; None also after `leave`, which the handler or another thread may call."""
        try:
            return None if self._has_left else self.next()
        except ValueError:
            if self._has_left:
                return None
            raise

    def leave(self):
        """Leaves the channel. From now on poll() does not call the handler."""
        self._has_left = True
        self._native.leave()
        if (channels := self._channels()) is not None:
            channels._forget(self._native, self)
