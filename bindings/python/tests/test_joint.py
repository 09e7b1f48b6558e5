"""Joint contracts under a real daemon, and QualMan's sample program."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from test_daemon import ROOT, eventually, in_child, program, start

import qfabric

CONFIG = '[control]\nbudget = "0s"\n[limits]\ncapacity = 0.5\n[memory]\nglobal_reserve = "256M"\n'


@pytest.fixture
def socket(tmp_path):
    with start(tmp_path, CONFIG) as socket:
        yield socket


def test_a_contract_is_made_found_and_ended(socket):
    amounts = {None: {"cpu": (0.9, 0.2), "memory": 1 << 20}}
    with qfabric.JointContract.apply(amounts, socket=socket) as contract:
        cpu, memory = contract.resources
        assert (cpu["resource"], cpu["asked"], cpu["granted"]) == ("cpu", 0.9, 0.5)
        assert (memory["resource"], memory["granted"]) == ("memory", 1 << 20)
        assert contract.is_partial
        same = qfabric.JointContract.open(contract.id, socket=socket)
        same.refresh()
        assert [found["id"] for found in qfabric.contracts(socket)] == [same.id]
    assert qfabric.contracts(socket) == []
    with pytest.raises(qfabric.Refused, match="no contract"):
        same.refresh()
    with pytest.raises(ValueError, match="ended"):
        contract.refresh()


FILM = """
[video]
frame_rate = { min = 10, max = 25 }
frame_size = "8kB"
[local]
memory = "16MiB"
computation = "30ms"
"""


def test_a_stream_is_explained_and_its_worst_quality_is_enough(socket):
    explained = qfabric.explain(FILM)
    assert any(step["formula"] == "T = 1 / R_A" for step in explained["steps"])
    with qfabric.JointContract.apply(socket=socket, stream=FILM) as contract:
        asked = [(found["resource"], found["asked"]) for found in contract.resources]
        assert asked == [(found["resource"], found["amount"]) for found in explained["resources"]]
        assert (asked[0], contract.resources[0]["granted"]) == (("cpu", 0.75), 0.5)
    with qfabric.JointContract.apply({None: {"cpu": 0.4}}, socket=socket, stream=FILM) as contract:
        assert [found["asked"] for found in contract.resources] == [0.4, asked[1][1]]
    for refused in (qfabric.explain, lambda text: qfabric.JointContract.apply(socket=socket, stream=text)):
        with pytest.raises(ValueError, match="line 3, column 1"):
            refused(FILM.replace("frame_rate", "frame_raet"))
    assert qfabric.contracts(socket) == []


def test_a_refusal_names_host_resource_and_the_largest_amount(socket):
    with pytest.raises(qfabric.Refused) as refused:
        qfabric.JointContract.apply({None: {"memory": 4096, "cpu": 0.9}}, socket=socket)
    error = refused.value
    assert (error.resource, error.asked, error.free, error.largest) == ("cpu", 0.9, 0.5, 0.5)
    assert error.refused_by and error.code == "contract_refused" and error.next_step
    assert error.holders == [] and error.others == 0
    with qfabric.JointContract.apply({None: {"cpu": 0.3}}, socket=socket):
        with pytest.raises(qfabric.Refused, match="held by contracts of") as refused:
            qfabric.JointContract.apply({None: {"cpu": 0.4}}, socket=socket)
        assert refused.value.holders == [(error.refused_by, 0.3)]
    assert qfabric.contracts(socket) == []
    for amounts in ({None: {"disk": 1}}, {None: {"cpu": -1}}, {None: {"cpu": (0.1, 0.2)}}, {}):
        with pytest.raises(ValueError):
            qfabric.JointContract.apply(amounts, socket=socket)


def test_cpu_and_memory_are_drawn_from_a_contract(socket):
    with qfabric.JointContract.apply({None: {"cpu": 0.5, "memory": 256 << 20}}, socket=socket) as contract:
        cpu = qfabric.Cpu(socket=socket)
        with pytest.raises(qfabric.Refused, match="contract of"):
            cpu.reserve(0.3, 40)
        with pytest.raises(ValueError, match="claim"):
            cpu.reserve(0.3, 40, contract="nonsense")
        cpu.reserve(0.3, 40, contract=contract)
        cpu.start()
        cpu.yield_now()
        cpu.free()
        with qfabric.Mem(socket) as mem:
            with pytest.raises(qfabric.Refused):
                mem.reserve(4096)
            with pytest.raises(qfabric.Refused, match="nobody:"):
                mem.reserve(4096, contract="nobody:7")
            huge, size, _ = mem.reserve_huge(1, contract=contract)
            assert size == 2 << 20
            mem.free_reserve(huge)
            reserve = mem.reserve(255 << 20, contract=contract.id)
            with mem.alloc(reserve, 76_800) as frame:
                frame.write(b"x" * 76_800)
        for packets in ("flow 7", "port 80", "mark 0"):
            with pytest.raises(ValueError):
                qfabric.Stream("lo", packets, 40, 1500, contract=contract, socket=socket)
        with pytest.raises(qfabric.Refused, match="contract"):
            qfabric.Stream("lo", "mark 7", 40, 1500, contract=contract, socket=socket)


def asks(socket, application="player"):
    """Applies a contract that needs consent; returns the refusal."""
    try:
        amounts = {None: {"cpu": 0.2}}
        qfabric.JointContract.apply(amounts, socket=socket, applications={None: application}, lease=True)
    except qfabric.Refused as refused:
        return str(refused)


def test_a_contract_ends_with_its_object_and_with_its_process(socket):
    amounts = {None: {"cpu": 0.3}}
    held = [qfabric.JointContract.apply(amounts, socket=socket, lease=True)]
    assert in_child(lambda: held.pop() is not None) and len(qfabric.contracts(socket)) == 1
    held.clear()
    assert qfabric.contracts(socket) == []
    holder = subprocess.Popen(["sleep", "1000"])
    qfabric.JointContract.apply(amounts, socket=socket, lease=holder.pid)
    assert len(qfabric.contracts(socket)) == 1
    holder.kill()
    holder.wait()
    eventually(lambda: qfabric.contracts(socket) == [])
    with pytest.raises(ValueError, match="lease"):
        qfabric.JointContract.apply(amounts, socket=socket, lease=0)


def test_an_application_consents_or_declines(socket):
    assert "no program answers" in asks(socket)
    with qfabric.Consent("player", socket) as answers, ThreadPoolExecutor() as pool:
        assert answers.next(0) is None
        for accepts in (True, False):
            asked = pool.submit(asks, socket)
            assert answers.answer_next(lambda q: q["contract"] and q["resources"]["cpu"] == 0.2 and accepts)
            assert (asked.result() is None) == accepts
        assert [found["application"] for found in qfabric.consents(socket)] == ["player"]
    assert qfabric.consents(socket) == []
    qfabric.consent("player", True, socket=socket)
    assert asks(socket) is None
    qfabric.consent("player", False, os.getpid(), socket)
    assert "did not consent" in asks(socket)
    qfabric.forget_consent("player", socket)
    with pytest.raises(qfabric.Refused, match="nobody answers"):
        qfabric.forget_consent("player", socket)


def test_a_program_decides_on_an_upgrade(socket):
    other = qfabric.JointContract.apply({None: {"cpu": 0.4}}, socket=socket)
    wants = {None: {"cpu": (0.3, 0.1)}}
    with pytest.raises(ValueError, match="accept, ask or never"):
        qfabric.JointContract.apply(wants, socket=socket, upgrades="later")
    with qfabric.JointContract.apply(wants, socket=socket, upgrades="ask") as contract:
        assert contract.is_partial and contract.next_offer(0) is None
        other.end()
        offer = contract.next_offer()
        assert offer["resources"][0]["granted"] == 0.3 and offer["left_ns"] > 0
        contract.answer_offer(offer, True)
        with pytest.raises(qfabric.Refused, match="offer"):
            contract.answer_offer(offer, True)

        def is_whole():
            contract.refresh()
            return not contract.is_partial

        eventually(is_whole)


DAEMON = """
ip link set lo up && ip link add qf0 type veth peer name qf0-far && ip link set qf0 up || exit 77
"$QFABRIC" daemon --config "$FOLDER/daemon.toml" --directory "$FOLDER" 2>"$FOLDER/log" & daemon=$!
until [ -S "$QFABRIC_SOCKET" ]; do kill -0 $daemon || exit 78; sleep 0.05; done
"$QFABRIC" net link add qf0 --rate 10M --htb >&2 || exit 79
"""

# The server's host is the network of `sleep`, at the other end of the link.
SAMPLE = """
unshare --net sleep 600 & there=$!
until [ "$(readlink /proc/$there/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.05; done
inside="nsenter --net=/proc/$there/ns/net"
ip addr add 10.79.0.1/24 dev qf0 && ip link set qf0-far name eth0 netns $there || exit 80
$inside ip addr add 10.79.0.2/24 dev eth0 && $inside ip link set eth0 up || exit 81
mkdir "$FOLDER/far"
$inside "$QFABRIC" daemon --config "$FOLDER/daemon.toml" --directory "$FOLDER/far" 2>"$FOLDER/far/log" & far=$!
until [ -S "$FOLDER/far/qfabric.sock" ]; do kill -0 $far || exit 82; sleep 0.05; done
export QFABRIC_SOCKET="$FOLDER/far/qfabric.sock"
"$QFABRIC" net link add eth0 --rate 10M --htb >&2 || exit 83
cd "$FOLDER" && "$QFABRIC" channel init-ca ca >&2 && "$QFABRIC" channel issue cam wall --ca ca --out . >&2 || exit 84
$inside "$PYTHON" "${PROGRAM%/*}/server.py" eth0 10.79.0.2:7800 wall wall >served & server=$!
until grep -q listens served; do kill -0 $server || exit 85; sleep 0.05; done
export QFABRIC_SOCKET="$FOLDER/qfabric.sock"
"$PYTHON" "$PROGRAM" qf0 10.79.0.2:7800 cam cam 20; code=$?
"$QFABRIC" contract ls
wait $server || exit 86
cat served
kill $daemon $far $there; wait $daemon; exit $code
"""


STREAM = """
"$PYTHON" "$PROGRAM"; code=$?
kill $daemon; wait $daemon; exit $code
"""

DRAWS = """
import qfabric
def begin(contract=None, size=6_000, dscp=None):
    return qfabric.Stream("qf0", "flow udp,127.0.0.1:5000,127.0.0.1:6000", 40, size, contract=contract, dscp=dscp)
with qfabric.JointContract.apply({None: {"network qf0 out": (9e6, 1e6)}}) as contract:
    rate = contract.resources[0]["granted"]
    for refused in (lambda: begin(), lambda: begin(contract, int(rate * 0.04 / 8) * 2)):
        try:
            refused()
        except qfabric.Refused:
            continue
        raise SystemExit("more than the contract was given")
    with begin(contract, dscp=46) as stream:
        assert stream.id is not None
        stream.set_dscp(0)
        for nonsense in (lambda: stream.set_dscp(64), lambda: begin(contract, dscp=300)):
            try:
                nonsense()
            except ValueError as error:
                assert "use 0 to 63" in str(error), error
                continue
            raise SystemExit("a code point that does not exist was accepted")
    last = begin(contract.id)
try:
    last.end()
except qfabric.Refused:
    print("the stream ended with its contract")
"""


def test_a_rate_is_drawn_from_a_contract(tmp_path):
    (tmp_path / "draws.py").write_text(DRAWS)
    assert inside(tmp_path, STREAM, tmp_path / "draws.py") == "the stream ended with its contract\n"


def test_the_sample_reserves_memory_network_and_cpu_and_plays_a_film_from_another_host(tmp_path):
    shown = inside(tmp_path, SAMPLE, ROOT / "examples/qualman-sample/sample.py")
    assert shown.startswith("20 frames, brightness 76800, ")
    for said in ("no joint contract is in force", "cam is served, 1843200 bit/s are reserved", "closed"):
        assert said in shown, shown


def inside(tmp_path, script, program_path):
    """Runs a script beside a daemon in a network of its own; returns its output."""
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("needs root, unshare and ip for a network of its own")
    (tmp_path / "daemon.toml").write_text(CONFIG)
    more = {
        "QFABRIC": program(),
        "QFABRIC_SOCKET": tmp_path / "qfabric.sock",
        "FOLDER": tmp_path,
        "PYTHON": sys.executable,
        "PROGRAM": program_path,
    }
    env = {**os.environ, **{key: str(value) for key, value in more.items()}}
    done = subprocess.run(["unshare", "--net", "sh", "-c", DAEMON + script], env=env, capture_output=True, text=True)
    log = tmp_path / "log"
    if done.returncode == 78 and "CAP_SYS_NICE" in log.read_text():
        pytest.skip("needs CAP_SYS_NICE")
    assert done.returncode == 0, done
    return done.stdout
