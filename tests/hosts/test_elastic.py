"""Elastic runs over three hosts: processes, agents and cables are lost, hosts come back, and what is trained is what one
device trains. The lead's run directory has all in the end. `make test-hosts` runs all; `make test` those that are not slow."""

import json
import random
import time

import pytest

from hosts import namespaces
from hosts.conftest import MOTLEY, RUN, nothing_runs, run_json, slow
from hosts.elastic_run import TIMEOUT, Running, summary

pytestmark = [pytest.mark.skipif(namespaces.missing() != "", reason=namespaces.missing())]

ELASTIC = f"{RUN} -C cluster.toml --elastic --adapt none"
LONG = f"{ELASTIC} --planner equal --steps 100000 --timeout {TIMEOUT}"
PORT = 7711


@pytest.fixture(scope="module", autouse=True)
def profiled(lead):
    """All are there when they are measured."""
    lead.run(f"{ELASTIC} --planner equal --steps 3 --run-dir profiled")


def fault(device, step, instruction, **more):
    return {"device": device, "step": step, "instruction": instruction, **more}


def train(lead, one_device, name, faults, *flags):
    """Twenty steps with these faults; what came and went."""
    (lead.home() / f"{name}.json").write_text(json.dumps({"schema": "motley.conditions/1", "faults": faults}))
    done = lead.run(f"{ELASTIC} --steps 20 --conditions {name}.json --run-dir {name} {' '.join(flags)}", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = summary(lead, name)
    assert found["losses"] == pytest.approx(one_device, rel=1e-5)
    assert (lead.home() / name / "model.safetensors").exists()
    return found["membership"], done.stderr


@pytest.mark.parametrize("device", ["a:0", "b:0", pytest.param("c:0", marks=slow)])
def test_a_process_that_is_killed_does_not_show(lead, hosts, one_device, device):
    events, _ = train(lead, one_device, f"kill{device[0]}", [fault(device, 7, 9)], "--planner equal --checkpoint-every 5")
    (lost,) = events
    assert lost["lost"] == [device]
    assert lost["lost_steps"] <= 1
    assert lost["pause_s"] < 2
    nothing_runs(hosts)


@pytest.mark.parametrize("seed", [pytest.param(3, marks=slow), 4, *(pytest.param(each, marks=slow) for each in (6, 7))])
def test_kills_under_drawn_plans_do_not_show(lead, one_device, seed):
    """Parts that only the lost had come from the last checkpoint, which is brought to who needs it."""
    draws = random.Random(seed)
    faults = [fault(draws.choice(["a:0", "b:0", "c:0"]), draws.randrange(1, 19), draws.randrange(40),
                    in_move=draws.random() < 0.3) for _ in range(2)]  # fmt: skip
    train(lead, one_device, f"drawn{seed}", faults, f"--planner random --seed {seed} --checkpoint-every 4")


@slow
def test_one_that_hangs_elsewhere(lead, one_device):
    events, _ = train(lead, one_device, "hangs", [fault("c:0", 5, 9, hangs=True)], f"--planner equal --timeout {TIMEOUT}")
    assert events[0]["lost"] == ["c:0"]
    assert events[0]["pause_s"] < 1.5  # behind the timeout


def test_a_cable_is_pulled_and_an_agent_killed_and_both_hosts_come_back(lead, hosts):
    run = Running(lead, "comes", f"{LONG} --listen {PORT} --checkpoint-every 20")
    hosts["c"].unplug()
    pulled = time.monotonic()
    run.wait_for(lambda: "c:0 lost; went on" in run.said())
    assert time.monotonic() - pulled < TIMEOUT + 3
    run.goes_on()
    hosts["c"].plug_again()
    lead.run(f"{MOTLEY} join {run.address()} --device c:0")
    run.goes_on()
    hosts["b"].run("pkill -KILL -f 'motley agent'", check=False)
    run.wait_for(lambda: "b:0 lost; went on" in run.said())
    # Asked for by a host that is not the coordinator's.
    done = hosts["c"].run(f"{MOTLEY} join {run.address()} --device b:0 --json")
    assert json.loads(done.stdout)["device"] == "b:0"
    lead.run(f"{MOTLEY} leave comes a:0")
    run.goes_on()
    found = run.stop()
    assert [each["lost"] for each in found["membership"] if each["lost"]] == [["c:0"], ["b:0"]]
    assert [each["joined"] for each in found["membership"] if each["joined"]] == [["c:0"], ["b:0"]]
    assert [each["left"] for each in found["membership"] if each["left"]] == [["a:0"]]
    assert all(each["lost_steps"] <= 1 for each in found["membership"])
    assert (lead.home() / "comes/checkpoint/latest/state.json").exists()
    nothing_runs(hosts)


def test_a_host_that_the_cluster_file_has_not_joins(lead, hosts):
    """With a device for which nobody has prices. It is cut off, comes back, and is of the run that goes on with this one."""
    lead.run(f"{MOTLEY} probe --hosts a,b -o pair.toml")
    long = f"{RUN} -C pair.toml --elastic --adapt none --planner equal --steps 100000 --timeout {TIMEOUT}"
    run = Running(lead, "new", f"{long} --listen {PORT} --checkpoint-every 20")
    before = run.steps()
    done = hosts["c"].run(f"{MOTLEY} join {run.address()} --device cpu --speed 0.5 --json")
    come = json.loads(done.stdout)
    assert come["device"] == "c:0" and come["state"] == "training", run.said()
    assert come["step"] > before
    run.goes_on()
    other = hosts["c"].run(f"{MOTLEY} join {run.address()} --device cpu --name b2 --host nowhere --json", check=False, timeout=60)
    assert other.returncode == 1 and "nowhere" in json.loads(other.stdout)["error"]["message"]
    hosts["c"].unplug()
    run.wait_for(lambda: "c:0 lost; went on" in run.said())
    hosts["c"].plug_again()
    hosts["c"].run(f"{MOTLEY} join {run.address()}", timeout=60)
    run.goes_on()
    found = run.stop()
    assert [each["joined"] for each in found["membership"] if each["joined"]] == [["c:0"], ["c:0"]]
    assert [each["lost"] for each in found["membership"] if each["lost"]] == [["c:0"]]
    again = Running(lead, "new", f"{long} --listen {PORT}")
    again.wait_for(lambda: "resume from step" in again.said())
    assert "c:0" in (lead.home() / "new/plan.json").read_text()
    again.goes_on()
    losses = again.stop()["losses"]
    one = f"{RUN} -C pair.toml --exclude b:0 --steps {len(losses)} --run-dir new-one"
    wanted = run_json(lead, one)["losses"]
    assert losses[:80] == pytest.approx(wanted[:80], rel=1e-5)
    assert losses == pytest.approx(wanted, rel=1e-5, abs=1e-5)  # rounding, after hundreds of steps
    nothing_runs(hosts)


@slow
def test_a_host_that_is_not_there_at_the_beginning(lead, hosts):
    hosts["c"].unplug()
    try:
        run = Running(lead, "later", f"{LONG} --absent c:0")
        done = lead.run(f"{MOTLEY} join later --device c:0 --json", check=False, timeout=60)
        assert done.returncode == 1
        assert json.loads(done.stdout)["error"]["code"] == "elastic.absent", done.stdout + run.said()
        assert "c:0 did not come: host c" in run.said()
        run.goes_on()
    finally:
        hosts["c"].plug_again()
    lead.run(f"{MOTLEY} join later --device c:0", timeout=60)
    run.goes_on()
    found = run.stop()
    assert [each["joined"] for each in found["membership"]] == [["c:0"]]
    nothing_runs(hosts)


@slow
def test_a_run_that_was_stopped_goes_on_elsewhere(lead, one_device):
    """Its checkpoints were written on b, and the coordinator's device is not used at all."""
    flags = "--planner equal --exclude a:0 --checkpoint-every 4 --run-dir resumed"
    lead.run(f"{ELASTIC} --steps 10 {flags}")
    lead.run(f"{ELASTIC} --steps 20 {flags}")
    found = summary(lead, "resumed")
    assert found["first_step"] == 10
    assert found["losses"] == pytest.approx(one_device, rel=1e-5)


@slow
@pytest.mark.parametrize("adapt, flags", [("split", ""), ("plan", ""), ("batch", "--batch-limits 60:60 --batch-rule none")])
def test_plans_change_over_hosts(lead, one_device, adapt, flags):
    """Without --elastic, too."""
    lead.run(f"{RUN} -C cluster.toml --planner equal --adapt {adapt} {flags} --steps 20 --run-dir adapt-{adapt}")
    assert summary(lead, f"adapt-{adapt}")["losses"] == pytest.approx(one_device, rel=1e-5)


@slow
def test_an_agent_that_dies_while_nothing_runs_there(lead, hosts):
    run = Running(lead, "idle", f"{LONG} --listen {PORT}")
    lead.run(f"{MOTLEY} leave idle b:0")
    run.goes_on()
    busy = lead.run("cut -d' ' -f14,15 /proc/$(pgrep -x motley | head -1)/stat").stdout
    time.sleep(3)
    later = lead.run("cut -d' ' -f14,15 /proc/$(pgrep -x motley | head -1)/stat").stdout
    ticks = sum(map(int, later.split())) - sum(map(int, busy.split()))
    assert ticks < 60, "hundredths of a second of the coordinator, in three seconds in which it has nothing to do"
    hosts["b"].run("pkill -KILL -f 'motley agent'", check=False)
    lead.run(f"{MOTLEY} join {run.address()} --device b:0")
    run.goes_on()
    assert [each["joined"] for each in run.stop()["membership"] if each["joined"]] == [["b:0"]]
    nothing_runs(hosts)
