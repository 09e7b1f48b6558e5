"""The bindings without a daemon: pace, measure, refuse invalid arguments. test_daemon.py has the tests with a daemon."""

import json
import signal
import threading
import time

import pytest

import qfabric


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@pytest.fixture
def session():
    with qfabric.Session(period_ms=8, alone=True, name="test") as session:
        yield session


def test_periods_come_at_their_releases(session):
    started = time.monotonic()
    assert list(session.periods(count=4)) == [0, 1, 2, 3]
    assert time.monotonic() - started >= 0.024
    assert session.quality["jobs"] == 4


def test_leaving_the_loop_ends_the_job(session):
    for k in session.periods():
        if k == 2:
            break
    assert session.quality["jobs"] == 3


def test_a_job_is_measured_even_if_it_fails(session):
    with pytest.raises(KeyError):
        with session.job(hint=3.0) as k:
            assert k == 0
            raise KeyError
    assert session.quality["jobs"] == 1


def test_the_cost_is_the_threads_cpu_time(session):
    session.begin()
    burn(0.003)
    time.sleep(0.01)
    assert 3e6 <= session.end_cycle() < 9e6


def test_releases_follow_the_start_that_was_named():
    with qfabric.Session(period_ms=5, alone=True, skip_late=True) as session:
        session.begin(release=time.monotonic_ns() - 20_000_000)
        session.end_cycle()
        assert session.wait() >= 4


def test_late_jobs_can_be_skipped():
    with qfabric.Session(period_ms=5, alone=True, skip_late=True) as session:
        with session.job():
            burn(0.02)
        assert session.wait() >= 3


def test_other_threads_run_and_a_signal_interrupts_while_a_job_is_waited_for():
    def interrupt(*_):
        raise TimeoutError

    def run():
        time.sleep(0.05)  # until the other thread waits; the result does not depend on it
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    def interrupted_after():
        with qfabric.Session(period_ms=4000, alone=True) as session:
            session.begin()
            session.end_cycle()
            started = time.monotonic()
            with pytest.raises(TimeoutError):
                threading.Thread(target=run).start()
                session.wait()
            return time.monotonic() - started

    signal.signal(signal.SIGALRM, interrupt)
    # A wait that nothing interrupts always lasts for the whole period.
    assert any(interrupted_after() < 3.9 for _ in range(10))


def test_alone_nothing_is_granted(session):
    assert session.grant == (0, 0, 0, 0) and session.grant.bandwidth == 0
    assert session.id is None and session.alone_because


def test_use_in_another_thread_is_an_error(session):
    errors = []

    def elsewhere():
        try:
            session.end_cycle()
        except RuntimeError as error:
            errors.append(str(error))

    other = threading.Thread(target=elsewhere)
    other.start()
    other.join()
    assert "another thread" in errors[0]


def test_use_of_an_ended_session_is_an_error(session):
    session.end()
    session.end()
    with pytest.raises(RuntimeError, match="has ended"):
        session.wait()


@pytest.mark.parametrize(
    "nonsense, named",
    [
        ({"period_ms": 0}, "0 ms"),
        ({"period_ms": float("nan")}, "0 ms"),
        ({"period_ms": 40, "server_period_ms": 7}, "7 ms"),
        ({"period_ms": 40, "predictor": "kalman:3"}, "mma:3,12"),
        ({"period_ms": 40, "controller": "up"}, "left, middle"),
        ({"period_ms": 40, "cls": "D"}, "A, B or C"),
        ({"period_ms": 40, "max_bandwidth": -1}, "-1"),
        ({"period_ms": 40, "name": ""}, "1 to 64"),
        ({"period_ms": 40, "service_ms": 10, "window": "5/5"}, "5/5"),
        ({"period_ms": 40, "service_ms": 50}, "50 ms is longer than the period 40 ms"),
        ({"period_ms": 40, "control_place": "moon"}, "moon"),
        ({"period_ms": 40, "reclaiming": "moon"}, "hard, soft, grub or iris"),
    ],
)
def test_an_invalid_argument_is_a_value_error_that_names_it(nonsense, named):
    with pytest.raises(ValueError, match=named):
        qfabric.Session(alone=True, **nonsense)


def test_invalid_foresight_is_refused(session):
    for known in [{"hint": float("nan")}, {"interval": (2, 1)}, {"hint": 1.0, "budget": 5}]:
        with pytest.raises(ValueError):
            session.end_cycle(**known)


def test_without_a_daemon_the_sockets_and_commands_are_named():
    with pytest.raises(qfabric.NoDaemon, match="/nowhere/qfabric.sock.*`qfabric daemon`"):
        qfabric.Session(period_ms=40, socket="/nowhere/qfabric.sock")
    with pytest.raises(qfabric.Error) as missing:
        qfabric.status(socket="/nowhere/qfabric.sock")
    assert missing.value.code == "no_daemon" and "`qfabric daemon`" in missing.value.next_step
    assert missing.value.next_step in str(missing.value)


def test_an_invalid_argument_has_a_code_and_a_next_step():
    with pytest.raises(ValueError, match="65 characters") as refused:
        qfabric.Session(period_ms=40, alone=True, name="x" * 65)
    assert refused.value.code == "invalid_contract" and refused.value.next_step in str(refused.value)


def test_a_probe_measures_iterations_without_a_daemon():
    cpu = qfabric.Cpu()
    assert cpu.probe_off() == qfabric.Probe(0.0, [])
    cpu.probe_on(10)
    for _ in range(4):
        burn(0.002)
        cpu.yield_now()
    probe = cpu.probe_off()
    assert len(probe.costs_ns) == 4 and min(probe.costs_ns) >= 2_000_000
    assert probe.utilisation == pytest.approx(sum(probe.costs_ns) / 4 / 10e6)
    assert cpu.session is None
    cpu.yield_now()
    cpu.free()


def test_a_service_without_its_period_is_refused():
    with pytest.raises(ValueError, match="service_ms is 10 without a period"):
        qfabric.Cpu(service_ms=10)


def test_parameters_are_suggested_from_a_trial():
    costs = [12_000_000 if k % 3 == 0 else 4_000_000 for k in range(60)]
    found = qfabric.suggest(costs, 20)
    assert found["predictor"] == "mma:3,3" and found["in_target"] > 0.9
    assert 0.3 < found["max_bandwidth"] <= 0.95 and found["class_b"] <= found["max_bandwidth"]
    with pytest.raises(ValueError, match="24"):
        qfabric.suggest(costs[:5], 20)
    with pytest.raises(ValueError, match="hint"):
        qfabric.suggest(costs, 20, hints=[1.0])
    with qfabric.Session(20, alone=True, predictor=found["predictor"], profile=(costs, [])) as session:
        assert session.overload is None and session.predicted_lateness() is None


def test_a_checkpoint_needs_a_part_of_the_job_and_a_daemon():
    with qfabric.Session(20, alone=True) as session, session.job():
        assert session.checkpoint(0.5) is False and session.checkpoint(1, levels=10) is False
        for wrong in (-0.1, 1.1, float("nan")):
            with pytest.raises(ValueError, match="from 0 to 1"):
                session.checkpoint(wrong)


def test_a_profile_is_stored_and_found_by_its_key(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    costs = [12_000_000, 4_000_000]
    assert qfabric.find_profile("player", size="640x480", fps=25) is None
    file = qfabric.store_profile(costs, "player", fps=25, size="640x480")
    assert file == tmp_path / "qfabric/profiles/player.json" and "640x480" in file.read_text()
    found = qfabric.find_profile("player", size="640x480", fps=25)
    assert found == (costs, []) and qfabric.find_profile("player") is None
    with qfabric.Session(20, alone=True, profile=found) as session:
        assert session.overload is None
    with pytest.raises(ValueError, match="no jobs"):
        qfabric.store_profile([], "player")
    with pytest.raises(ValueError, match="\"size=\""):
        qfabric.find_profile("player", size="")


def test_the_messages_of_a_program_renew_a_profile_of_delays(tmp_path):
    file = tmp_path / "net-beta-eth0.json"
    with pytest.raises(ValueError, match="qfabric net profile"):
        qfabric.DelayRecorder(file, 60_000, 5_000_000)
    file.write_text('{"host":"beta","interface":"eth0","kernel":"7.3","min_rtt_ns":2000000,"points":[]}')
    recorder = qfabric.DelayRecorder(str(file), message=60_000, rate=5_000_000)
    assert recorder.lost(60_000) is False
    recorder.shortest_round_trip(4)
    with pytest.raises(ValueError, match="round_trip_ms"):
        recorder.acknowledged(60_000, -1)
    written = [recorder.acknowledged(60_000, round_trip_ms=22) for _ in range(100)]
    assert written == 99 * [False] + [True]
    profile = json.loads(file.read_text())
    point = profile["points"][0]
    assert (profile["min_rtt_ns"], point["p99_ns"], point["arrived"], point["lost"]) == (4_000_000, 20_000_000, 100, 1)
    recorder.change_rate(6_000_000)
    assert recorder.acknowledged(60_000, 22) is False


def test_a_job_can_be_skipped():
    with qfabric.Session(2, alone=True) as session:
        seen = []
        for k in session.periods(3):
            seen.append(k)
            if k == 1:
                session.skip()
        assert seen == [0, 1, 2] and session.quality["jobs"] == 2
        session.skip()
        assert session.wait() == 4


def test_a_ladder_lowers_the_quality_and_takes_it_back():
    ladder = qfabric.Ladder({"quality": [80, 60, 40, 20], "size": [640, 320]}, wanted=20)
    assert (ladder.rung, ladder.lowest, ladder.levels) == (0, 4, {"quality": 80, "size": 640})
    assert not ladder.relieve(0) and ladder.on_rate(float("nan"), 0.5) is None
    rates = [20, 12, 20, 20, 20, 20, 20, 20, 20]
    steps = [(second, ladder.on_rate(rate, second)) for second, rate in enumerate(rates, 1)]
    made = [(second, step.before, step.after, step.kind) for second, step in steps if step]
    assert made == [(2, 0, 2, "too slow"), (8, 2, 1, "kept")]
    assert steps[1][1].reason == "12.0/s of 20.0/s" and ladder.relieve(10)
    step = ladder.move_to(99, 20)
    assert step.is_lower and step.after == 4 and step.reason == "asked for"
    assert ladder.levels == {"quality": 20, "size": 320} and ladder.move_to(4) is None


@pytest.mark.parametrize(
    "dimensions, terms, text",
    [
        ({}, {}, "0 dimensions"),
        ({"quality": []}, {}, "quality has 0 levels"),
        ({"quality": [2, 1]}, {"wanted": 0}, "the wanted rate is 0"),
        ({"quality": [2, 1]}, {"kept_above": 0.5}, "kept_above is 0.5"),
        ({"quality": [2, 1]}, {"calm_ms": -1}, "calm_ms is -1"),
    ],
)
def test_a_ladder_of_invalid_values_is_refused(dimensions, terms, text):
    with pytest.raises(ValueError, match=text):
        qfabric.Ladder(dimensions, **{"wanted": 20, **terms})
