"""ECalls under a real daemon."""

import faulthandler
import pathlib
import re
import signal
import struct
import threading
import time

import pytest

import qfabric

from test_daemon import PATIENCE, in_child, socket  # noqa: F401: a fixture

SAMPLE = "struct sample { long value; };"


@pytest.fixture
def ecalls(socket):  # noqa: F811: the fixture
    with qfabric.ECalls(socket=socket) as ecalls:
        yield ecalls


def test_events_are_filtered_where_they_are_raised_and_read_from_memory(ecalls):
    service = ecalls.register_service("py.sample", SAMPLE, "numbers")
    events = ecalls.subscribe("py.sample", code="return input.value > attr.limit;", attributes={"limit": 1})
    for value in (1, 2, 3):
        service.raise_event({"value": value})
    assert [events.next(PATIENCE)["value"], events.next(PATIENCE)["value"]] == [2, 3]
    ecalls["limit"] = 10
    service.raise_event({"value": 9})
    service.raise_event({"value": 11})
    assert events.next(PATIENCE)["value"] == 11 and ecalls["limit"] == 10
    assert events.flag == 3 and events.info["counters"]["blocked"] == 2
    assert "py.sample" in [service["name"] for service in ecalls.services()]
    events.unsubscribe()
    service.unregister()


def test_the_guides_example_runs(socket, monkeypatch, capsys):  # noqa: F811: the fixture
    page = (pathlib.Path(__file__).parents[3] / "docs/guide/src/ecalls.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.setenv("QFABRIC_SOCKET", str(socket))
    exec(compile(example, "the guide", "exec"), {})
    counts = [int(line.split()[1]) for line in capsys.readouterr().out.splitlines()]
    assert len(counts) == 5 and all(count % 10 == 0 for count in counts)


def test_a_deferred_value_may_name_its_moment(ecalls):
    ecalls.defer(1)
    ecalls.defer(2, when="schedule")
    with pytest.raises(ValueError, match="use syscall, schedule, delay"):
        ecalls.defer(3, when="soon")


def test_a_signal_carries_the_value(ecalls):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
    service = ecalls.register_service("py.signal", SAMPLE)
    ecalls_subscription = ecalls.subscribe("py.signal", memory_up=None, signal=signal.SIGRTMIN)
    service.raise_event({"value": 7})
    assert signal.sigtimedwait([signal.SIGRTMIN], PATIENCE) is not None
    assert ecalls_subscription.info["counters"]["signals"] == 1


def test_a_call_is_answered(ecalls):
    service = ecalls.register_service("py.double", SAMPLE)

    def answer():
        kind, call, data = ecalls.next_notice(PATIENCE)
        assert kind == "call"
        ecalls.reply(call, struct.pack("q", 2 * struct.unpack("q", data)[0]))

    thread = threading.Thread(target=answer)
    thread.start()
    assert struct.unpack("q", ecalls.call("py.double", struct.pack("q", 21), timeout=PATIENCE / 2)) == (42,)
    thread.join()
    service.unregister()


def test_invalid_requests_are_refused(ecalls):
    with pytest.raises(qfabric.Refused, match="no service"):
        ecalls.subscribe("no.such")
    with pytest.raises(ValueError, match="no attribute"):
        ecalls["nothing"] = 1
    service = ecalls.register_service("py.strict", SAMPLE)
    with pytest.raises(ValueError, match="no field other"):
        service.raise_event({"other": 1})


def test_closing_the_connection_ends_what_was_made_with_it(socket):  # noqa: F811: the fixture
    with qfabric.ECalls(socket=socket) as ecalls:
        service = ecalls.register_service("py.closed", SAMPLE)
        events = ecalls.subscribe("py.closed")
    with pytest.raises(ValueError, match="has ended"):
        events.next(0)
    with pytest.raises(ValueError, match="has ended"):
        service.raise_event({"value": 1})
    with qfabric.ECalls(socket=socket) as other:
        assert "py.closed" not in [service["name"] for service in other.services()]


def test_a_subscription_without_memory_has_no_events_to_wait_for(ecalls):
    _service = ecalls.register_service("py.bare", SAMPLE)  # ends when nobody refers to it
    events = ecalls.subscribe("py.bare", memory_up=None, signal=signal.SIGRTMIN)
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    assert events.next(3600) is None
    faulthandler.cancel_dump_traceback_later()


def test_a_fast_call_needs_its_service_and_at_most_eight_numbers(ecalls):
    _service = ecalls.register_service("py.called", SAMPLE)  # ends when nobody refers to it
    events = ecalls.subscribe("py.called")
    with pytest.raises(Exception, match="takes no fast calls"):
        events.call(1)
    with pytest.raises((TypeError, ValueError)):
        events.call(*range(9))


def test_a_thread_that_waits_for_an_event_does_not_stop_the_others(ecalls):
    service = ecalls.register_service("py.held", SAMPLE)
    events = ecalls.subscribe("py.held")
    faulthandler.dump_traceback_later(PATIENCE, exit=True)  # a call that holds the interpreter would hang here
    waiting, asking = threading.Event(), threading.Event()
    seen = []

    def wait():
        waiting.set()
        seen.append(events.next(3600)["value"])

    def ask():
        asking.set()
        seen.append(events.flag)  # waits for the thread above, without the interpreter

    threads = [threading.Thread(target=wait), threading.Thread(target=ask)]
    threads[0].start()
    waiting.wait()
    time.sleep(0.1)  # gives a wrong implementation time to fail; the result does not depend on it
    threads[1].start()
    asking.wait()
    time.sleep(0.1)
    service.raise_event({"value": 7})
    for thread in threads:
        thread.join()
    faulthandler.cancel_dump_traceback_later()
    assert 7 in seen and len(seen) == 2
    service.unregister()


def test_a_child_of_a_fork_leaves_its_parents_events_alone(ecalls):
    service = ecalls.register_service("py.fork", SAMPLE)
    events = ecalls.subscribe("py.fork")
    service.raise_event({"value": 1})
    while events.flag < 1:
        time.sleep(0.01)

    def tried():
        for attempt in (lambda: events.next(1), lambda: service.raise_event({"value": 9}), events.unsubscribe):
            try:
                attempt()
                return False
            except qfabric.Error as error:
                if "forked" not in str(error):
                    return False
        return True

    assert in_child(tried)
    assert events.next(PATIENCE)["value"] == 1
    service.raise_event({"value": 2})
    assert events.next(PATIENCE)["value"] == 2
