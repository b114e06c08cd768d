"""What is wrong with a host is said with its name, what was tried and what to do; nothing is left running.

Each host as it can be in life: asleep, without Motley, with another one, behind a firewall, without a key.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from hosts import namespaces
from hosts.conftest import BUILD, MOTLEY, RUN, begin, nothing_runs, slow
from hosts.namespaces import INSIDE

pytestmark = [pytest.mark.skipif(namespaces.missing() != "", reason=namespaces.missing()), slow]

PROBE = f"{MOTLEY} probe --hosts a,b,c --json"
TRAIN = f"{RUN} -C cluster.toml --planner equal --steps 3 --timeout 10"


def fails(host, command, code, within):
    """The error that it ends with, in so many seconds."""
    begin = time.monotonic()
    done = host.run(command, check=False, timeout=within + 30)
    assert done.returncode == code, done.stdout + done.stderr
    assert time.monotonic() - begin < within
    return json.loads(done.stdout)["error"]


@pytest.fixture(scope="module", autouse=True)
def profiled(lead):
    """What follows is about hosts, not about measuring."""
    assert lead.run(f"{TRAIN} --run-dir profiled", check=False).returncode == 0


@contextlib.contextmanager
def replaced(host, script):
    """Another program in the place of motley there."""
    other = f"{INSIDE}/other"
    path = pathlib.Path(f"/proc/{host.pid}/root{other}")
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    host.run(f"cp {MOTLEY} {INSIDE}/motley; ln -sf {BUILD}/motley-worker {INSIDE}/motley-worker")
    with changed(host, f"mount --bind {other} {MOTLEY}", f"umount {MOTLEY}"):
        yield


@contextlib.contextmanager
def asleep(host):
    """Its sshd, the first process there, which signals from inside do not reach."""
    os.kill(host.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(host.pid, signal.SIGCONT)


@contextlib.contextmanager
def changed(host, do, undo):
    host.run(do)
    try:
        yield
    finally:
        host.run(undo, check=False)


def both(lead, hosts, run_dir, within=30):
    """The errors of probing and of training."""
    errors = [fails(lead, PROBE, 1, within), fails(lead, f"{TRAIN} --run-dir {run_dir}", 1, within)]
    nothing_runs(hosts)
    return errors


def test_an_address_that_nobody_has(lead, hosts):
    """A cluster file from yesterday, and a host less today."""
    lead.run(f"sed 's/host = \"c\"/host = \"10.77.{hosts.net}.99\"/' cluster.toml > yesterday.toml")
    error = fails(lead, TRAIN.replace("cluster.toml", "yesterday.toml") + " --run-dir yesterday", 1, 40)
    assert error["code"] == "host.unreachable"
    assert f"10.77.{hosts.net}.99" in error["message"] and "--exclude" in error["message"]
    nothing_runs(hosts)


def test_a_host_that_wants_a_password(lead, hosts):
    with changed(hosts["c"], "mv .ssh/authorized_keys .ssh/away", "mv .ssh/away .ssh/authorized_keys"):
        for error in both(lead, hosts, "password"):
            assert error["code"] == "host.unreachable"
            assert "host c" in error["message"] and "Permission denied" in error["message"]
            assert "password" in error["message"]


def test_a_host_without_motley(lead, hosts):
    empty = f"{INSIDE}/empty"
    with changed(hosts["c"], f"mkdir -p {empty}; mount --bind {empty} {BUILD}", f"umount {BUILD}"):
        for error in both(lead, hosts, "without"):
            assert error["code"] == "host.unreachable"
            assert "host c" in error["message"] and "motley" in error["message"]


@pytest.mark.parametrize("motley, torch, names", [("0.0.1", "2.15", "Motley"), (None, "2.9", "PyTorch")])
def test_a_host_with_another_version(lead, hosts, motley, torch, names):
    """Nothing is started there, and nothing anywhere else."""
    own = lead.run(f"{MOTLEY} --version").stdout.split()[1]
    hello = json.dumps({"is": "hello", "motley": motley or own, "torch": torch, "scratch": "/nowhere"})
    with replaced(hosts["c"], f"echo '{hello}'\nexec cat >/dev/null"):
        for error in [fails(lead, PROBE, 4, 20), fails(lead, f"{TRAIN} --run-dir version", 4, 20)]:
            assert error["code"] == "host.version"
            assert "host c" in error["message"] and names in error["message"]
    nothing_runs(hosts)


def test_a_host_that_is_slow_to_answer(lead, hosts):
    """Longer than agents wait for a lead that is silent: the others are told that it lives."""
    with replaced(hosts["c"], f"sleep 24; exec {INSIDE}/motley agent"):
        done = lead.run(PROBE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    nothing_runs(hosts)


@contextlib.contextmanager
def firewalls(hosts):
    """Ssh alone comes in."""
    for host in hosts:
        host.run("iptables -A INPUT -p tcp --dport 22 -j ACCEPT; iptables -A INPUT -i lo -j ACCEPT;"
                 "iptables -A INPUT -m state --state ESTABLISHED -j ACCEPT; iptables -A INPUT -j DROP")
    try:
        yield
    finally:
        for host in hosts:
            host.run("iptables -F INPUT")


def test_firewalls_that_let_ssh_through_alone(lead, hosts):
    with firewalls(hosts):
        probed, trained = both(lead, hosts, "firewall", within=60)
    assert probed["code"] == "host.wire"
    assert "firewall" in probed["message"] and "firewall" in trained["message"]
    assert any(f"{host}:0" in trained["message"] or f"host {host}" in trained["message"] for host in "bc")


def test_a_host_whose_sshd_sleeps(lead, hosts):
    with asleep(hosts["c"]):
        for error in both(lead, hosts, "asleep", within=45):
            assert error["code"] == "host.unreachable" and "host c" in error["message"]


@pytest.mark.parametrize("who", ["motley", "motley-worker"])
def test_a_host_that_answers_and_then_hangs(lead, hosts, who):
    """Its agent or its worker, in the middle of training."""
    process = begin(lead, f"hang-{who}")
    hosts["c"].run(f"pkill -STOP -x {who}")
    stopped_at = time.monotonic()
    try:
        out, _ = process.communicate(timeout=60)
        ended_s = time.monotonic() - stopped_at
    finally:
        hosts["c"].run(f"pkill -CONT -x {who}", check=False)
    message = json.loads(out)["error"]["message"]
    assert process.returncode == 1 and ("c:0" in message or "host c" in message)
    assert ended_s < 30
    nothing_runs(hosts)


def test_ctrl_c_while_hosts_are_reached(lead, hosts):
    """Before all have answered."""
    with asleep(hosts["c"]):
        process = subprocess.Popen(lead.command(f"exec {TRAIN} --run-dir early"), stdout=subprocess.PIPE, text=True)
        time.sleep(3)
        lead.run("pkill -INT -x motley")
        process.communicate(timeout=10)
        assert process.returncode in (130, -signal.SIGINT)
    nothing_runs(hosts)
