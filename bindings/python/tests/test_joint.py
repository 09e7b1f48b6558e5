"""Joint contracts under a real daemon, and QualMan's sample program."""

import os
import shutil
import subprocess
import sys

import pytest
from test_daemon import ROOT, program, start

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


def test_a_refusal_names_host_resource_and_the_largest_amount(socket):
    with pytest.raises(qfabric.Refused) as refused:
        qfabric.JointContract.apply({None: {"memory": 4096, "cpu": 0.9}}, socket=socket)
    error = refused.value
    assert (error.resource, error.asked, error.free, error.largest) == ("cpu", 0.9, 0.5, 0.5)
    assert error.refused_by and error.code == "contract_refused" and error.next_step
    assert qfabric.contracts(socket) == []
    for amounts in ({None: {"disk": 1}}, {None: {"cpu": -1}}, {None: {"cpu": (0.1, 0.2)}}, {}):
        with pytest.raises(ValueError):
            qfabric.JointContract.apply(amounts, socket=socket)


SCRIPT = """
ip link set lo up && ip link add qf0 type veth peer name qf0-far && ip link set qf0 up || exit 77
"$QFABRIC" daemon --config "$FOLDER/daemon.toml" --directory "$FOLDER" 2>"$FOLDER/log" & daemon=$!
until [ -S "$QFABRIC_SOCKET" ]; do kill -0 $daemon || exit 78; sleep 0.05; done
"$QFABRIC" net link add qf0 --rate 10M --htb >&2 || exit 79
"$PYTHON" -c 'import socket, time
while True:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(bytes([0x55]) * 19200, ("127.0.0.1", 5004))
    time.sleep(0.05)' & server=$!
"$PYTHON" "$SAMPLE" qf0 5004 20; code=$?
"$QFABRIC" contract ls
kill $server; kill $daemon; wait $daemon; exit $code
"""


def test_the_sample_reserves_memory_network_and_cpu(tmp_path):
    if os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        pytest.skip("needs root, unshare and ip for a network of its own")
    (tmp_path / "daemon.toml").write_text(CONFIG)
    more = {
        "QFABRIC": program(),
        "QFABRIC_SOCKET": tmp_path / "qfabric.sock",
        "FOLDER": tmp_path,
        "PYTHON": sys.executable,
        "SAMPLE": ROOT / "examples/qualman-sample/sample.py",
    }
    env = {**os.environ, **{key: str(value) for key, value in more.items()}}
    done = subprocess.run(["unshare", "--net", "sh", "-c", SCRIPT], env=env, capture_output=True, text=True)
    log = tmp_path / "log"
    if done.returncode == 78 and "CAP_SYS_NICE" in log.read_text():
        pytest.skip("needs CAP_SYS_NICE")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("20 frames, brightness 76800, "), done
    assert "no joint contract is in force" in done.stdout
