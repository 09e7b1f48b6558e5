"""Events of the kernel and of other programs, and code that runs where they happen.

    with qfabric.ECalls() as ecalls:
        events = ecalls.subscribe("timer", code="return 1;", memory_up=True, options={"period": "10ms"})
        for event in events:
            print(event)
"""

import json as _json
import weakref as _weakref

from . import _qfabric


class Service:
    """A service of this process; ended by `unregister()`, with the connection, or with the process."""

    def __init__(self, native):
        self._native = native

    def raise_event(self, fields, *, pid=-1, deadline_us=0, cpu=False):
        """Raises an event with these fields for the subscriber `pid`, or for all (-1). The event is dropped if it cannot
        be delivered within `deadline_us` microseconds (0: no deadline)."""
        self._native.raise_json(_json.dumps(fields), pid, deadline_us, cpu)

    def unregister(self):
        """Ends the service."""
        self._native.unregister()

    _end = unregister


class Subscription:
    """A subscription; iterate over it for its events, as dicts with `time_ns`."""

    def __init__(self, native):
        self._native = native

    def next(self, timeout=1.0):
        """The next event; None if none arrives within `timeout` seconds."""
        came = self._native.next_json(timeout)
        return came and {"time_ns": came[0], **_json.loads(came[1])}

    def __iter__(self):
        while True:
            event = self.next()
            if event is not None:
                yield event

    def call(self, *values):
        """A fast user-ECall: the handlers of this subscription to `app.call` run in the kernel with these values (at
        most eight whole numbers) before the method returns. Returns the handler's answer, its verdict without the
        lowest four bits; None if no handler has answered, so that the blocking `ECalls.call` is needed."""
        verdict = self._native.call([*values] + [0] * (8 - len(values)))
        return None if verdict & 8 else verdict >> 4

    @property
    def flag(self):
        """Counter of events in the shared memory; read without a system call."""
        return self._native.flag

    @property
    def info(self):
        """Counters, state, and where the steps run: a dict."""
        return _json.loads(self._native.info_json())

    def unsubscribe(self):
        """Ends the subscription."""
        self._native.unsubscribe()

    _end = unsubscribe


class ECalls:
    """A connection for ECalls; everything made with it ends when it ends."""

    def __init__(self, socket=None):
        self._native = _qfabric.NativeEcalls(socket)
        self._made = _weakref.WeakSet()

    def services(self):
        """All services: a list of dicts."""
        return _json.loads(self._native.services_json())

    def register_service(self, name, format, about="", open=False):
        """Announces a service; `format` is the C declaration of its events' structure."""
        return self._keep(Service(self._native.register(name, format, about, open)))

    def subscribe(self, service, *, code=None, handler=None, thread=False, memory_up=True, signal=None, order=(),
                  process_id=0, only_pid=None, deadline_us=0, group=None, options=None, attributes=None,
                  pass_faults=False, favour=False, hold_until=None, signal_by_kernel=False):
        """Subscribes, with the fields of the paper's `struct ecalls`; `memory_up` may be a dict (layout, slots,
        position). With `favour`, each event favours the subscriber's server (mechanism ext). `hold_until` names the field
        with the time, in ns of CLOCK_MONOTONIC, at which the event is delivered. With `signal_by_kernel`, the kernel
        sends the signal itself, if it can; its value then does not reach a signalfd."""
        memory = {} if memory_up is True else memory_up or None
        request = {
            "service": service, "k_code": code, "k_handler": handler, "k_thread": thread, "memory_up": memory,
            "signal": signal, "order": list(order), "process_id": process_id, "only_pid": only_pid,
            "deadline_us": deadline_us, "group": group, "attributes": attributes or {},
            "options": {name: str(value) for name, value in (options or {}).items()},
            "on_fault": "pass" if pass_faults else "block",
            "favour": favour, "hold_until": hold_until, "signal_by_kernel": signal_by_kernel,
        }
        return self._keep(Subscription(self._native.subscribe_json(_json.dumps(request))))

    def name_handler(self, name, code):
        """Gives E-code a name, for `handler=`."""
        self._native.name_handler(name, code)

    def __getitem__(self, name):
        """Value of an attribute."""
        return self._native.get_attribute(name)

    def __setitem__(self, name, value):
        """A fast user-ECall: sets the value for the next handler calls, without a system call."""
        self._native.set_attribute(name, value)

    def defer(self, value, when=None):
        """A deferred user-ECall: queues the value until the subscription to `app.deferred` processes its batch. `when`,
        `"syscall"`, `"schedule"`, `"delay"` or `"before_schedule"`, restricts it to the subscriptions with this
        moment."""
        self._native.defer(value, when)

    def call(self, service, data, timeout=1.0):
        """Sends `data` to the owner of a service and waits at most `timeout` seconds for the answer."""
        return self._native.call(service, data, timeout)

    def next_notice(self, timeout=1.0):
        """The next notice, (kind, number, bytes): a `call` to answer with `reply`, a handler `taken_out`, or a
        subscription that has `ended`. None if none arrives within `timeout` seconds."""
        return self._native.next_notice(timeout)

    def reply(self, call, data):
        """Answers a call; `call` is its number in the notice."""
        self._native.reply(call, data)

    def close(self):
        """Closes the connection and ends everything made with it. A second call has no effect."""
        for made in list(self._made):
            try:
                made._end()
            except _qfabric.Error:
                pass  # it ends with the connection
        self._native = None

    def _keep(self, made):
        self._made.add(made)
        return made

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
