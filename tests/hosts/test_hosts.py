"""Three machines, found, measured, planned for and trained on by the commands that a person gives.

Hosts are namespaces with an sshd each, 0.8, 0.4 and 0.2 of a core, and cables of 200 Mbit/s (namespaces.py).
`make test-hosts` runs all; `make test` those that are not marked `slow`.
"""

import time

import pytest

from hosts import namespaces
from hosts.conftest import MOTLEY, RATE_MBIT, RUN, begin, ends, nothing_runs, run_json, slow

pytestmark = pytest.mark.skipif(namespaces.missing() != "", reason=namespaces.missing())


@pytest.fixture(scope="module")
def trained(lead):
    return run_json(lead, f"{RUN} -C cluster.toml --planner split --steps 12 --run-dir three")


def test_hosts_are_found_and_told_apart(lead):
    text = lead.run("cat cluster.toml").stdout
    for share in ("0.8", "0.4", "0.2"):
        assert f"quota = {share}" in text
    found = run_json(lead, f"{MOTLEY} probe --hosts a,b,c --json")
    assert [device["name"] for device in found["devices"]] == ["a:0", "b:0", "c:0"]
    for link in found["links"]:
        assert link["bandwidth_bytes_per_s"] * 8e-6 == pytest.approx(RATE_MBIT, rel=0.15)


def test_losses_are_those_of_one_device(trained, one_device, hosts):
    assert trained["losses"] == pytest.approx(one_device[:12], rel=1e-5)
    nothing_runs(hosts)


@slow  # on a machine that does nothing else
def test_the_fastest_host_has_the_most_samples(trained):
    samples = {device["name"]: device["samples"] for device in trained["devices"]}
    assert samples["a:0"] == max(samples.values()) > 20


def test_a_run_goes_on_with_other_hosts(lead, trained, one_device):
    more = run_json(lead, f"{RUN} -C cluster.toml --exclude b:0 --planner equal --steps 20 --run-dir three")
    assert more["first_step"] == 12
    assert more["losses"][-8:] == pytest.approx(one_device[12:], rel=1e-5)


def test_checkpoints_of_a_remote_rank_0_come_to_the_lead(lead, one_device):
    """The lead's own device is idle: all ranks are elsewhere."""
    done = run_json(lead, f"{RUN} -C cluster.toml --exclude a:0 --planner equal --steps 6 --run-dir away")
    assert done["losses"] == pytest.approx(one_device[:6], rel=1e-5)
    assert lead.run("ls away/checkpoint/latest/ away/model.safetensors", check=False).returncode == 0


def test_a_sharded_plan_keeps_its_parts(lead, one_device):
    command = f"{RUN} -C cluster.toml --planner random --seed 5"
    done = run_json(lead, f"{command} --steps 5 --run-dir parts")
    assert done["losses"] == pytest.approx(one_device[:5], rel=1e-4)
    more = run_json(lead, f"{RUN} -C cluster.toml --planner equal --seed 5 --steps 8 --run-dir parts")
    assert more["losses"][-3:] == pytest.approx(one_device[5:8], rel=1e-4)
    # Cut anew, from a checkpoint that lies at the coordinator alone.
    last = run_json(lead, f"{RUN} -C cluster.toml --planner random --seed 5 --steps 10 --run-dir parts")
    assert last["losses"][-2:] == pytest.approx(one_device[8:10], rel=1e-4)


def test_a_host_that_does_not_exist_is_named(lead):
    lead.run("sed 's/host = \"b\"/host = \"nowhere\"/' cluster.toml > wrong.toml")
    done = lead.run(f"{RUN} -C wrong.toml --planner equal --steps 2 --run-dir wrong", check=False)
    assert done.returncode == 1
    assert "nowhere" in done.stdout and "ssh" in done.stdout


def test_a_missing_host_is_left_out_only_if_allowed(lead):
    assert lead.run(f"{MOTLEY} probe --hosts a,nowhere", check=False).returncode == 1
    done = lead.run(f"{MOTLEY} probe --hosts a,nowhere --allow-missing", check=False)
    assert done.returncode == 0 and "left out: host nowhere" in done.stderr


def test_a_killed_worker_is_named(lead, hosts):
    process = begin(lead, "killed")
    hosts["b"].run("pkill -KILL motley-worker")
    code, message = ends(process)
    assert code == 1 and "b:0" in message and "killed by signal 9" in message
    nothing_runs(hosts)


@slow
@pytest.mark.parametrize("what", ["-x motley", "-f '[s]shd: root'"])
def test_a_lost_agent_ends_the_run_and_names_the_host(lead, hosts, what):
    process = begin(lead, f"lost{len(what)}")
    hosts["c"].run(f"pkill -KILL {what}", check=False)
    code, message = ends(process)
    assert code == 1 and "c" in message
    nothing_runs(hosts)


@slow
def test_a_killed_lead_leaves_nothing(lead, hosts):
    process = begin(lead, "headless")
    lead.run("pkill -KILL -x motley")
    process.wait(timeout=30)
    nothing_runs(hosts, within=30)


@slow
def test_a_pulled_cable_ends_the_run(lead, hosts):
    process = begin(lead, "pulled")
    hosts["c"].unplug()
    try:
        code, message = ends(process, within=60)
        assert code == 1 and ("c:0" in message or "host c" in message)
    finally:
        time.sleep(25)  # the agent there takes the coordinator for dead
        left = hosts["c"].processes()
        hosts["c"].plug_again()
    assert not left
    nothing_runs(hosts)


@slow
def test_an_interrupted_run_saves_and_goes_on(lead, hosts):
    process = begin(lead, "stopped")
    lead.run("pkill -TERM -x motley")
    process.communicate(timeout=40)
    assert process.returncode == 75
    nothing_runs(hosts)
