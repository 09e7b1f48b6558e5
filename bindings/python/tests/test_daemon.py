"""The bindings under a real daemon: the program built beside them, or the one named by $QFABRIC_BIN."""

import contextlib
import os
import pathlib
import shutil
import subprocess
import time

import pytest

import qfabric

ROOT = pathlib.Path(__file__).resolve().parents[3]
# Bound of every wait in seconds; longer than any step, even with eight hogs per core.
PATIENCE = 120


def program():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = [target / profile / "qfabric" for profile in ("debug", "release")]
    named = [pathlib.Path(path) for path in [os.environ.get("QFABRIC_BIN"), shutil.which("qfabric")] if path]
    found = [path for path in named[:1] + built + named[1:] if path.exists()]
    return found[0] if found else pytest.skip("no qfabric program; build it with `cargo build -p qfabric-cli`")


@contextlib.contextmanager
def start(folder, text):
    """Starts a daemon with this configuration; yields its socket."""
    socket = folder / "qfabric.sock"
    log = open(folder / "log", "w")
    config = folder / "daemon.toml"
    config.write_text(f'{text}\n[api]\ntimeout = "{PATIENCE}s"\n')
    command = [program(), "daemon", "--config", config, "--directory", folder]
    daemon = subprocess.Popen(command, stdout=log, stderr=log)
    until = time.monotonic() + PATIENCE
    while not socket.exists():
        if daemon.poll() is not None or time.monotonic() > until:
            log = (folder / "log").read_text()
            daemon.kill()
            if "CAP_SYS_NICE" in log:
                pytest.skip("needs CAP_SYS_NICE")
            pytest.fail(f"the daemon did not start:\n{log}")
        time.sleep(0.02)
    yield str(socket)
    daemon.terminate()
    assert daemon.wait(PATIENCE) == 0


@pytest.fixture
def socket(tmp_path):
    with start(tmp_path, "[limits]\ncapacity = 0.8\n") as socket:
        yield socket


def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


def eventually(holds):
    """Waits, because a thread that ends in an overrun leaves SCHED_DEADLINE a little after its session."""
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.005)


def in_child(act):
    """The return value of `act` in a child made by fork, which ends without running the parent's clean-up."""
    child = os.fork()
    if child == 0:
        done = False
        try:
            done = act()
        finally:
            os._exit(0 if done else 1)
    return os.waitpid(child, 0)[1] == 0


def test_a_child_of_a_fork_leaves_its_parents_contract_alone(socket):
    def reached(jobs):
        for _ in range(3000):  # a count, not a time
            if session.grant.jobs >= jobs:
                return session.grant.jobs
            session.wait()
            session.skip()
        return session.grant.jobs

    def child():
        for _ in range(20):
            with session.job():
                pass
        alone = "forked" in session.alone_because and session.id is None and session.grant.jobs == 0
        session.end()
        with qfabric.Session(period_ms=20, name="child", socket=socket) as own:
            with own.job():
                pass
            return alone and own.alone_because is None

    with qfabric.Session(period_ms=20, name="parent", socket=socket) as session:
        for _ in range(5):
            with session.job():
                burn(0.001)
        assert reached(5) == 5
        assert in_child(child)
        assert os.sched_getscheduler(0) & 0xFF == 6  # SCHED_DEADLINE
        assert [seen["contract"]["name"] for seen in qfabric.status(socket=socket)["applications"]] == ["parent"]
        for _ in range(5):
            with session.job():
                burn(0.001)
        assert reached(10) == 10 and session.alone_because is None


def test_jobs_run_under_a_reservation(socket):
    before = os.sched_getscheduler(0)
    with qfabric.Session(period_ms=20, name="snake", max_bandwidth=0.5, socket=socket) as session:
        for _ in range(20):
            with session.job(hint=2.0):
                burn(0.002)
        assert session.alone_because is None and session.grant.budget_ns > 0
        assert 0 < session.grant.bandwidth <= 0.5
        (seen,) = qfabric.status(socket=socket)["applications"]
        assert (seen["id"], seen["contract"]["name"]) == (session.id, "snake")
        assert os.sched_getscheduler(0) & 0xFF == 6  # SCHED_DEADLINE
    eventually(lambda: os.sched_getscheduler(0) == before)
    eventually(lambda: qfabric.status(socket=socket)["applications"] == [])


def test_a_cpu_is_reserved_for_the_block_and_given_back(socket):
    before = os.sched_getscheduler(0)
    with qfabric.Cpu(period_ms=20, service_ms=4, socket=socket) as cpu:
        for _ in range(5):
            burn(0.001)
            cpu.yield_now()
        assert os.sched_getscheduler(0) & 0xFF == 6  # SCHED_DEADLINE
        assert 0 < cpu.session.grant.bandwidth <= 0.2
        (seen,) = qfabric.status(socket=socket)["applications"]
        assert (seen["guaranteed"], seen["contract"]["max_bandwidth"]) == (0.2, 0.2)
        with pytest.raises(qfabric.Refused, match="0.9"):
            cpu.reserve(0.9, 20)
    eventually(lambda: os.sched_getscheduler(0) == before)
    eventually(lambda: qfabric.status(socket=socket)["applications"] == [])


def test_memory_is_reserved_shared_and_freed(socket):
    with qfabric.Mem(socket) as mem, qfabric.Mem(socket) as other:
        reserve = mem.reserve(100_000)
        with mem.alloc(reserve, 20) as frame:
            frame.write(b"frame 1", 3)
            other.join(reserve)
            assert other.open(reserve, frame.id).read(7, 3) == b"frame 1"
            assert len(frame) == 20
            with pytest.raises(ValueError, match="beyond the 20 bytes"):
                frame.write(b"x", 20)
        with pytest.raises(qfabric.Refused, match="asked for"):
            mem.alloc(reserve, 200_000)
        assert mem.resize(reserve, 300_000) >= 300_000
        assert qfabric.status(socket=socket)["memory"]["pools"][0]["members"] == 2
        huge, size, missing = mem.reserve_huge(1)
        with mem.alloc(huge, 1_000_000) as frame:
            assert size >= 1_000_000 and (frame.pages == "huge") == (missing is None)
    eventually(lambda: "pools" not in qfabric.status(socket=socket)["memory"])


def test_metrics_are_part_of_the_contract_and_energy_can_be_saved(socket):
    rate = qfabric.Metric("frame_rate", 5, 25, "int u(int r) { return r * 4; }", "int c(int r) { return r * 1000; }", 5)
    with qfabric.Session(period_ms=40, metrics=[rate], socket=socket) as session:
        (seen,) = qfabric.status(socket=socket)["applications"]
        assert seen["contract"]["utility"]["metrics"] == [rate._asdict()]
        assert seen["utility"]["most"] == 100
        saving = session.save_energy()
        assert 0 < saving["clock_part"] <= 1 and isinstance(saving["missing"], list)
        with session.job():
            eventually(lambda: session.checkpoint(0.5, levels=2))
            assert session.checkpoint(3 / 4, 2)
    with pytest.raises(qfabric.Refused, match="frame_rate"):
        qfabric.Session(period_ms=40, metrics=[rate._replace(utility="int u(")], socket=socket)
    with pytest.raises(ValueError, match="maximum 2"):
        qfabric.Session(period_ms=40, metrics=[rate._replace(max=2)], socket=socket)
    assert qfabric.Session(period_ms=40, alone=True).save_energy() is None


def test_a_fixed_share_stays_whatever_the_jobs_use(socket):
    with qfabric.Session(period_ms=20, fixed=0.3, socket=socket) as session:
        for cost_s in (0.0, 0.001, 0.004, 0.0):
            with session.job():
                burn(cost_s)
            assert session.grant.bandwidth == pytest.approx(0.3)
        (seen,) = qfabric.status(socket=socket)["applications"]
        assert (seen["guaranteed"], seen["contract"]["fixed"]) == (0.3, 0.3)
    with pytest.raises(ValueError, match="fixed 0.7 CPU is above 0.5 CPU"):
        qfabric.Session(period_ms=20, fixed=0.7, max_bandwidth=0.5, socket=socket)


@pytest.mark.parametrize(
    "wish, named",
    [
        ({"service_ms": 2, "window": "1/5"}, "a window"),
        ({"favour_events": True}, "favour"),
        ({"reclaiming": "soft"}, "soft"),
        ({"reclaiming": "iris"}, "IRIS"),
        ({"work_conserving": True}, "extra service"),
        ({"control_place": "kernel"}, "kernel"),
    ],
)
def test_a_contract_that_needs_ext_is_refused_under_deadline_with_what_this_machine_can_give(socket, wish, named):
    with pytest.raises(qfabric.Refused, match=named) as refused:
        qfabric.Session(period_ms=20, socket=socket, **wish)
    # On a kernel without sched_ext, the refusal says that nothing else gives it.
    assert "ext" in str(refused.value) or "no other mechanism of this machine" in str(refused.value)


def test_a_refusal_names_the_requested_and_the_free_amount(socket):
    with pytest.raises(qfabric.Refused, match="0.9") as refused:
        qfabric.Session(
            period_ms=20, cls="B", guaranteed=0.9, max_bandwidth=0.9, socket=socket, loan_rate_bps=2_000_000
        )
    refusal = refused.value
    assert refusal.code == "over_committed" and refusal.next_step in str(refusal)
    assert (refusal.asked, refusal.free, refusal.offer, refusal.offer_memory) == (0.9, 0.8, None, None)
    assert refusal.offer_rate is None


def test_a_claim_without_a_loan_is_refused(socket):
    with pytest.raises(ValueError, match="HOST:NUMBER"):
        qfabric.Session(period_ms=20, socket=socket, claim="alpha")
    with pytest.raises(qfabric.Refused, match="no loan for the claim") as refused:
        qfabric.Session(period_ms=20, socket=socket, claim="alpha:1")
    assert refused.value.code == "no_such_claim"


def test_giving_back_an_unknown_loan_is_refused(socket):
    with pytest.raises(ValueError, match="HOST:NUMBER"):
        qfabric.give_back("alpha", socket)
    with pytest.raises(qfabric.Refused) as refused:
        qfabric.give_back("alpha:1", socket)
    assert refused.value.code == "channels_off"


def test_limits_are_read_and_changed(socket):
    limits = qfabric.limits(socket=socket)
    assert limits["capacity"] == 0.8 and limits["users"] == {}
    limits["users"][4711] = 0.25
    assert qfabric.set_limits(limits, socket=socket)["users"] == {"4711": 0.25}
    with pytest.raises(ValueError, match="0 .last. to 9"):
        qfabric.set_limits({"levels": {10: 0.5}}, socket=socket)
    with pytest.raises(ValueError, match="unknown field"):
        qfabric.set_limits({"user": {0: 0.5}}, socket=socket)
    assert qfabric.limits(socket=socket)["users"] == {"4711": 0.25}
    changed = qfabric.change_limits({"users": {4712: 0.5}, "capacity": 0.7}, socket=socket)
    assert (changed["users"], changed["capacity"]) == ({"4711": 0.25, "4712": 0.5}, 0.7)
    with pytest.raises(ValueError, match="0 .last. to 9"):
        qfabric.change_limits({"users": {4711: None}, "levels": {10: 0.5}}, socket=socket)
    with pytest.raises(ValueError, match="unknown field"):
        qfabric.change_limits({"user": {4711: None}}, socket=socket)
    assert qfabric.change_limits({"users": {4711: None}}, socket=socket)["users"] == {"4712": 0.5}


def test_a_task_is_called_when_an_overload_begins_and_ends(tmp_path):
    told = []
    with start(tmp_path, "[limits]\ncapacity = 0.5\n") as socket:
        with qfabric.Session(period_ms=20, predictor="ma:2", max_bandwidth=0.9, socket=socket) as session:
            session.on_overload(told.append)
            for _ in session.periods(3000):
                burn(0.002 if told else 0.014)
                if len(told) > 1:
                    break
            assert told[1:] == [None] and session.overload is None
            assert told[0].wanted > 0.6 and told[0].granted <= 0.5 and 0 < told[0].part < 1
            assert session.predicted_lateness() is not None
