"""Channels under a real daemon, without other hosts."""

import faulthandler
import signal

import pytest

import qfabric

from test_daemon import PATIENCE, start

FRAME = "struct frame { int number; int size; };"
ODD = "return input.number % 2;"


@pytest.fixture
def channels(tmp_path):
    with start(tmp_path, "[channels]\nenabled = true\nengine = 'none'\nhost = 'alpha'\n") as socket:
        with qfabric.Channels(socket=socket) as channels:
            yield channels


def test_handlers_receive_the_events_that_filters_let_pass(channels):
    channels.register("player", "conference", {"frame_rate": (10, 25)})
    video = channels.create("video", FRAME)
    seen = []
    video.sink_subscribe(seen.append)
    video.install("out", "odd", ODD)
    source = video.source_subscribe()
    sent = [source.submit({"number": number}, attributes={"rate": 25}) for number in (1, 2, 3)]
    assert [event["filtered"] for event in sent] == [0, 1, 0]
    while len(seen) < 2:
        assert channels.poll(PATIENCE)
    assert [event["event"]["number"] for event in seen] == [1, 3]
    assert seen[0]["host"] == channels.host == "alpha" and seen[0]["attributes"] == {"rate": 25}
    assert video.info["filters"][0]["calls"] == 3


def test_a_decision_of_a_policy_reaches_the_on_decided_callback(channels):
    video = channels.create("video", FRAME)
    video.sink_subscribe(print)
    video.source_subscribe()
    decisions = []
    channels.on_decided = decisions.append
    code = "struct output { long rate_milli; }; output.rate_milli = 7000;"
    assert channels.start_policy("code", channel="video", code=code)["name"] == "code.video"
    while not decisions:
        channels.poll(5)
    assert (decisions[0]["attribute"], decisions[0]["subject"], decisions[0]["amount"]) == ("app.rate_milli", "alpha", 7000)
    assert video.info["paced"][0]["rate_milli"] == 7000
    assert [policy["name"] for policy in channels.policies()] == ["code.video"]
    channels.stop_policy("code.video")
    while decisions[-1]["amount"] is not None:
        channels.poll(5)
    with pytest.raises(qfabric.Refused, match="policy ls"):
        channels.stop_policy("code.video")


def test_reported_positions_lead_to_a_decision_for_the_follower(channels):
    sound, picture = (channels.register(player, "lips") for player in ("sound", "picture"))
    decisions = []
    channels.on_decided = decisions.append
    started = channels.start_policy("media", group="lips", leader="sound", follower="picture")
    assert started["name"] == "media.lips" and started["policy"]["tolerance_ns"] == 80_000_000
    while not decisions:
        sound.report("app.position", 10_000_000_000)
        picture.report("app.position", 9_000_000_000)
        channels.poll(0.1)
    assert (decisions[0]["attribute"], decisions[0]["subject"]) == ("app.skip", "picture")
    assert decisions[0]["amount"] >= 1_000_000_000
    with pytest.raises(ValueError, match="begins with app"):
        sound.report("cpu.run_queue", 1)


def test_a_sink_without_a_handler_is_read_with_next_and_a_refusal_names_the_next_step(channels):
    video = channels.create("video", FRAME)
    sink = video.sink_subscribe(attributes={"load": 3})
    video.source_subscribe().submit({"number": 7})
    assert sink.next(PATIENCE)["event"]["number"] == 7 and sink.next(0) is None
    with pytest.raises(qfabric.Refused, match="exists"):
        channels.create("video", FRAME)
    with pytest.raises(qfabric.Refused, match="channel ls"):
        channels.open("sound")
    with pytest.raises(ValueError, match="nmber"):
        video.source_subscribe().submit({"nmber": 7})


def test_a_sink_that_has_left_is_not_polled_any_more(channels):
    video = channels.create("video", FRAME)
    source, seen = video.source_subscribe(), []

    def once(event):
        seen.append(event["event"]["number"])
        sink.leave()

    sink = video.sink_subscribe(once)
    for number in (1, 2):
        source.submit({"number": number})
    while not seen:
        assert channels.poll(PATIENCE)
    video.sink_subscribe(lambda event: seen.append(event["event"]["number"]))
    source.submit({"number": 3})
    while len(seen) < 2:
        assert channels.poll(PATIENCE)
    source.leave()
    assert seen == [1, 3] and len(channels._open) == 2  # the channel and the second sink


def test_an_event_for_a_sink_without_a_handler_does_not_keep_poll_busy(channels):
    video = channels.create("video", FRAME)
    read_with_next = video.sink_subscribe()
    video.source_subscribe().submit({"number": 1})
    looks, handle_notices = [], channels._handle_notices
    channels._handle_notices = lambda: looks.append(None) or handle_notices()
    assert channels.poll(0.5) == 0
    assert len(looks) <= 110  # 5 ms lie between two looks, after a few shorter pauses
    assert read_with_next.next(PATIENCE)["event"]["number"] == 1


def test_a_signal_interrupts_waiting_for_an_event(channels):
    def interrupt(*_):
        raise InterruptedError

    sink = channels.create("video", FRAME).sink_subscribe()
    before = signal.signal(signal.SIGALRM, interrupt)
    faulthandler.dump_traceback_later(PATIENCE, exit=True)  # a call that ignores signals would wait for an hour
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(InterruptedError):
        sink.next(3600)
    faulthandler.cancel_dump_traceback_later()
    signal.signal(signal.SIGALRM, before)


def test_queued_events_wait_for_a_slow_sink_in_order(channels):
    video = channels.create("video", FRAME, pressure="block")
    sink = video.sink_subscribe(capacity=4)
    source = video.source_subscribe()
    for number in range(200):
        source.submit_queued({"number": number}, attributes={"rate": 25}, patience=PATIENCE)
    assert not source.drain(0)
    assert [sink.next(PATIENCE)["event"]["number"] for _ in range(200)] == list(range(200))
    assert source.drain(PATIENCE)
    source.leave()
    with pytest.raises(ValueError, match="has left"):
        source.drain()


def test_a_sink_is_told_which_transcoders_of_the_source_were_applied(channels):
    video = channels.create("video", FRAME)
    sink, source = video.sink_subscribe(), video.source_subscribe()

    def halve(data):
        if len(data) < 2:
            raise RuntimeError("too short")
        return data[::2]

    # The order is not that of the names.
    reverse = ("a_reverse", lambda data: data[::-1], False)
    source.set_transcoders(("half", halve, True), reverse, ("five", lambda data: 5, False), ("b", 3, False))
    source.submit({"number": 1}, attributes={"rate": 25}, tail=b"abcd")
    event = sink.next(PATIENCE)
    assert (event["event"]["tail"], event["attributes"]["rate"]) == (b"ca".hex(), 25)
    assert qfabric.transcoded(event) == ["half", "a_reverse"]
    failed = [notice for notice in channels.notices if notice["kind"] == "transcoder failed"]
    assert [notice["transcoder"] for notice in failed] == ["five", "b"]
    assert all("TypeError" in notice["why"] for notice in failed)
    with pytest.raises(RuntimeError, match="too short"):
        source.submit_queued({"number": 2}, tail=b"a")
    for wrong in ("no name", "", "x" * 22):
        with pytest.raises(ValueError, match="no name of a transcoder"):
            source.set_transcoders((wrong, halve, False))
    with pytest.raises(ValueError, match="twice"):
        source.set_transcoders(("half", halve, True), ("half", halve, True))
    source.set_transcoders()
    source.submit({"number": 3}, tail=b"abcd")
    event = sink.next(PATIENCE)
    assert (event["event"]["number"], event["event"]["tail"], qfabric.transcoded(event)) == (3, b"abcd".hex(), [])
