"""A service and its client over METP, with real certificates."""

import faulthandler
import signal
import subprocess

import pytest
from test_daemon import PATIENCE, in_child, program

import qfabric


@pytest.fixture
def realm(tmp_path):
    def run(*words):
        subprocess.run([program(), *words], check=True, cwd=tmp_path, capture_output=True)

    run("channel", "init-ca", "ca")
    run("channel", "issue", "cam", "wall", "--ca", "ca", "--out", ".")
    return tmp_path


def opened(realm, server, service="film", **more):
    return qfabric.ClientConnection(server.address, realm / "cam", "cam", service, **more)


def test_messages_arrive_in_both_directions_and_the_mode_is_switched(realm):
    with qfabric.ServerConnection("127.0.0.1:0", realm / "wall", "wall", "film") as server:
        assert server.accept(0.01) is None
        with opened(realm, server, dscp=46) as client, server.accept(PATIENCE) as accepted:
            assert (client.peer, accepted.peer) == ("wall", "cam")
            assert client.send(b"picture" * 1000, kind="I") == 0
            client.set_partially_reliable(True)
            assert client.send(b"sound", kind="audio", deadline=20) == 1
            assert accepted.receive(PATIENCE) == (0, "I", b"picture" * 1000, [], 0.0)
            assert accepted.receive(PATIENCE).kind == "audio"
            assert accepted.send(b"answer") == 0 and client.receive(PATIENCE).data == b"answer"
            assert client.receive(0.01) is None
            client.replace_carrier(server.address)
            client.flush(PATIENCE)
            assert client.statistics["delivered"] == 2
            with pytest.raises(ValueError, match="qfabric net profile"):
                client.record_delays(realm / "net-wall.json", [60_000])
            client.rebind("127.0.0.1:0", carrier=1)
            assert client.send(b"from another port") == 2 and accepted.receive(PATIENCE).number == 2
            client.flush(PATIENCE)
            events = list(iter(client.event, None))
            outcomes = [event["outcome"] for event in events if event["event"] == "outcome"]
            assert outcomes == ["delivered"] * 3
            assert {"event": "carrier_attached", "carrier": 1} in events
            client.finish()
            accepted.finish()
            assert client.wait_for_end(PATIENCE) == "both sides finished"
    with pytest.raises(ValueError, match="closed"):
        client.send(b"x")


def test_a_signal_interrupts_waiting(realm):
    def interrupt(*_):
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, interrupt)
    faulthandler.dump_traceback_later(PATIENCE, exit=True)  # a call that ignores signals would wait for an hour
    with qfabric.ServerConnection("127.0.0.1:0", realm / "wall", "wall", "film") as server:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(InterruptedError):
            server.accept(3600)
        with opened(realm, server) as client:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(InterruptedError):
                client.wait_for_end(3600)
            with pytest.raises(TimeoutError, match="longer than 700 ms"):
                client.wait_for_end(0.7)
    faulthandler.cancel_dump_traceback_later()
    signal.signal(signal.SIGALRM, before)


def test_refusals_name_the_reason(realm):
    with qfabric.ServerConnection("127.0.0.1:0", realm / "wall", "wall", "film") as server:
        with pytest.raises(qfabric.Refused, match="no service news"):
            opened(realm, server, "news")
        with pytest.raises(ValueError, match="is 64; use 0 to 63"):
            opened(realm, server, dscp=64)
        with opened(realm, server, largest_message=1000, streams=True) as client:
            with pytest.raises(ValueError, match="kind"):
                client.send(b"x", kind="X")
            with pytest.raises(ValueError, match="1001 bytes, of at most 1000; split"):
                client.send(b"x" * 1001)
        with pytest.raises(ValueError, match="cam.pem|wall.pem"):
            qfabric.ClientConnection(server.address, realm / "wall", "cam", "film")


def test_a_child_of_a_fork_leaves_its_parents_connections_and_service_alone(realm):
    def child():
        for call in [lambda: client.send(b"x"), client.finish, lambda: accepted.receive(0), lambda: server.accept(0)]:
            with pytest.raises(qfabric.Error, match="forked"):
                call()
        for handle in (client, accepted, server):
            handle.close()
        return True

    with qfabric.ServerConnection("127.0.0.1:0", realm / "wall", "wall", "film") as server:
        with opened(realm, server) as client, server.accept(PATIENCE) as accepted:
            assert client.send(b"before") == 0 and accepted.receive(PATIENCE).data == b"before"
            assert in_child(child)
            assert client.send(b"after") == 1 and accepted.receive(PATIENCE).data == b"after"
            assert accepted.send(b"answer") == 0 and client.receive(PATIENCE).data == b"answer"
            with opened(realm, server) as another, server.accept(PATIENCE) as there:
                assert another.send(b"new") == 0 and there.receive(PATIENCE).data == b"new"
