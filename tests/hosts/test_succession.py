"""The host that leads an elastic run is lost, and another leads on: what is trained is what one device trains. A network that
is cut never leaves two halves training. `make test-hosts` runs all; `make test` those that are not slow."""

import contextlib
import json
import time

import pytest

from hosts import namespaces
from hosts.conftest import MOTLEY, RUN, nothing_runs, run_json, slow
from hosts.elastic_run import TIMEOUT, Running

pytestmark = [pytest.mark.skipif(namespaces.missing() != "", reason=namespaces.missing())]

STEPS = 80
ELASTIC = f"{RUN} -C cluster.toml --elastic --adapt none --planner equal --timeout {TIMEOUT}"
LED = ".cache/motley/hosts/led"


@pytest.fixture(scope="module")
def losses(lead):
    flags = f"--exclude b:0 --exclude c:0 --steps {STEPS} --run-dir one{STEPS}"
    return run_json(lead, f"{RUN} -C cluster.toml {flags}")["losses"]


@pytest.fixture(scope="module", autouse=True)
def profiled(lead):
    """All are there when they are measured."""
    lead.run(f"{ELASTIC} --steps 3 --run-dir profiled")


def led_directory(host, name):
    """Where it leads on, if it does."""
    found = [each for each in (host.home() / LED).glob(f"{name}-*") if each.is_dir()]
    return found[0] if found else None


def wait_for(what, seconds=30):
    limit = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < limit
        time.sleep(0.05)
    return found


def summary_of(host, name):
    folder = led_directory(host, name)
    with contextlib.suppress(OSError, ValueError, TypeError):
        return json.loads((folder / "summary.json").read_text())
    return None


def wait_until_led(host, name):
    """Its run directory, once it trains there."""
    folder = wait_for(lambda: led_directory(host, name))
    wait_for(lambda: (folder / "door.json").exists())
    log = folder / "log.jsonl"
    before = len(log.read_text().splitlines())
    wait_for(lambda: len(log.read_text().splitlines()) > before + 5)
    return folder


def kill_lead(lead):
    lead.run("pkill -KILL -x motley; pkill -KILL -x motley-worker", check=False)


def test_the_host_that_leads_is_lost_and_another_leads_on(lead, hosts, losses):
    run = Running(lead, "led", f"{ELASTIC} --steps {STEPS} --checkpoint-every 30")
    kill_lead(lead)
    killed = time.time()
    run.child.wait(10)
    found = wait_for(lambda: summary_of(hosts["b"], "led"))
    assert len(found["losses"]) == STEPS
    assert found["losses"] == pytest.approx(losses, rel=1e-5)
    (lost,) = [each for each in found["membership"] if each["lost"]]
    assert lost["lost"] == ["a:0"]
    assert lost["lost_steps"] <= 1
    assert lost["pause_s"] < 5, (lost, killed)
    folder = led_directory(hosts["b"], "led")
    assert (folder / "model.safetensors").exists()
    assert (folder / "profiles/profiles.db").exists()  # the prices that the first one measured
    assert led_directory(hosts["c"], "led") is None
    nothing_runs(hosts)


@slow
@pytest.mark.parametrize("every, at", [(10, 25), (500, 5)])
def test_a_model_that_only_the_lost_host_had_is_gone_on_with_from_its_checkpoint(lead, hosts, losses, every, at):
    """Or from the beginning, where it had saved none."""
    alone = ELASTIC.replace("--planner equal", "--batch-split 60,0,0")
    command = f"{alone} --steps {STEPS} --checkpoint-every {every}"
    run = Running(lead, f"alone{every}", command)
    assert "nobody else has" in run.said()
    run.wait_for(lambda: run.steps() > at)
    kill_lead(lead)
    run.child.wait(10)
    found = wait_for(lambda: summary_of(hosts["b"], f"alone{every}"), 60)
    assert len(found["losses"]) == STEPS
    assert found["losses"] == pytest.approx(losses, rel=1e-5)
    (lost,) = [each for each in found["membership"] if each["lost"]]
    if every > STEPS:
        assert lost["lost_steps"] > at
    else:  # none, where the one that was lost had just saved
        assert lost["lost_steps"] <= 2 * every
    nothing_runs(hosts)


@slow
def test_the_next_lead_knows_a_newcomer(lead, hosts):
    """Two hosts, and one that their cluster file has not: without it, the one that is left would have to stop."""
    port = 7712
    run = Running(lead, "grown", f"{ELASTIC.replace('cluster.toml', 'cluster.toml --exclude c:0')} --steps 100000 --listen {port}")
    hosts["c"].run(f"{MOTLEY} join {run.address()} --device cpu --speed 0.5 --name d")
    run.goes_on()
    kill_lead(lead)
    run.child.wait(10)
    folder = wait_until_led(hosts["b"], "grown")
    assert "d:0" in (folder / "plan.json").read_text()
    # It leaves and comes back at the new coordinator.
    hosts["b"].run(f"{MOTLEY} leave {LED}/{folder.name} d:0")
    word = json.loads((folder / "door.json").read_text())["word"]
    hosts["c"].run(f"{MOTLEY} join {word}@b:{port} --device d:0")
    hosts["b"].run("pkill -TERM -f '[-]-succeed'")  # not the agent there
    found = wait_for(lambda: summary_of(hosts["b"], "grown"))
    assert [each["lost"] for each in found["membership"] if each["lost"]] == [["a:0"]]
    assert [each["joined"] for each in found["membership"] if each["joined"]] == [["d:0"]]
    one = f"{RUN} -C cluster.toml --exclude b:0 --exclude c:0 --steps {len(found['losses'])} --run-dir grown-one"
    assert found["losses"] == pytest.approx(run_json(lead, one)["losses"], rel=1e-5, abs=1e-5)
    nothing_runs(hosts)


@slow
def test_a_lead_that_is_cut_off_stops_and_the_others_train_on(lead, hosts, losses):
    """Both halves hear nothing of each other. The lead saves what it has, and one process of the other half leads on."""
    run = Running(lead, "cut", f"{ELASTIC} --steps {STEPS} --checkpoint-every 30")
    hosts["a"].unplug()
    try:
        assert run.child.wait(30) == 75
        assert "not more than half of the job's hosts answer" in run.said()
        found = wait_for(lambda: summary_of(hosts["b"], "cut"), 60)
    finally:
        hosts["a"].plug_again()
    assert found["losses"] == pytest.approx(losses, rel=1e-5)
    assert [each["lost"] for each in found["membership"]] == [["a:0"]]
    stopped = json.loads((lead.home() / "cut/summary.json").read_text())
    assert stopped["stopped"]
    assert len(stopped["losses"]) < STEPS
    nothing_runs(hosts)


@slow
def test_one_of_two_hosts_saves_what_it_has_and_stops(lead, hosts):
    run = Running(lead, "two", f"{ELASTIC} --exclude c:0 --steps 1000 --checkpoint-every 500")
    kill_lead(lead)
    run.child.wait(10)
    found = wait_for(lambda: summary_of(hosts["b"], "two"), 60)
    assert found["stopped"]
    assert (led_directory(hosts["b"], "two") / "checkpoint/latest/state.json").exists()
    nothing_runs(hosts)


@slow
def test_a_run_that_ends_by_itself_has_no_heirs(lead, hosts):
    run = Running(lead, "ended", f"{ELASTIC} --steps 1000")
    run.stop()
    nothing_runs(hosts)
    assert led_directory(hosts["b"], "ended") is None


@slow
def test_the_next_lead_is_lost_too(lead, hosts, losses):
    """Two of three remain when the first is gone; of these two the last has no majority, and saves."""
    run = Running(lead, "twice", f"{ELASTIC} --steps 1000 --checkpoint-every 500")
    kill_lead(lead)
    run.child.wait(10)
    log = wait_for(lambda: led_directory(hosts["b"], "twice")) / "log.jsonl"
    before = len(log.read_text().splitlines())
    wait_for(lambda: len(log.read_text().splitlines()) > before + 5)
    hosts["b"].run("pkill -KILL -x motley; pkill -KILL -x motley-worker", check=False)
    found = wait_for(lambda: summary_of(hosts["c"], "twice"), 60)
    assert found["stopped"]
    steps = min(STEPS, len(found["losses"]))
    assert steps > 5
    assert found["losses"][:steps] == pytest.approx(losses[:steps], rel=1e-5)
    nothing_runs(hosts)


@slow
def test_a_batch_that_grew_is_gone_on_with(lead, hosts):
    """Its learning rate, what was learned of devices and noise, and the samples: as if one had led all the time."""
    adapting = f"{RUN} -C cluster.toml --elastic --survive 1 --adapt batch --batch-limits 60:600 --planner equal --timeout {TIMEOUT}"
    steps = 1500
    run = Running(lead, "grew", f"{adapting} --steps {steps}")
    run.wait_for(lambda: (run.last() or {"batch": 0})["batch"] > 60, 60)
    time.sleep(1)  # an order or two later, so that others have heard of it
    kill_lead(lead)
    run.child.wait(10)
    found = wait_for(lambda: summary_of(hosts["b"], "grew"), 120)
    folder = led_directory(hosts["b"], "grew")
    logged = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    done = [each for each in logged if "loss" in each]
    assert [each["step"] for each in done] == list(range(len(done)))
    batches = [each["batch"] for each in done]
    assert sum(batches) >= steps * 60 > sum(batches[:-1])
    (lost,) = [each for each in found["membership"] if each["lost"]]
    at = lost["step"]
    assert batches[at] == batches[at - 1] > 60 and done[at]["lr"] == pytest.approx(done[at - 1]["lr"])
    assert "is not gone on with" not in run.said()
    decided = [json.loads(line) for line in (folder / "decisions.jsonl").read_text().splitlines()]
    assert all(each["policy"] != "motley" or "alone" not in each["why"] for each in decided)
    nothing_runs(hosts)


@slow
def test_the_next_lead_rents_on(lead, hosts):
    """With the prices that the first one knew last; the deadline counts from its beginning, and what it paid is paid."""
    text = (lead.home() / "cluster.toml").read_text()
    for name, zone in (("b", "z-1"), ("c", "z-2")):
        text = text.replace(f'name = "{name}"\n', f'name = "{name}"\nspot = true\nzone = "{zone}"\n')
    (lead.home() / "rented.toml").write_text(text)
    offer = '[[offer]]\nkind = "cpu"\nzone = "{}"\nspeed = 0.3\nprice_per_hour = {}\nspot = true\nstart_cold = "20s"\n'
    (lead.home() / "market.toml").write_text('schema = "motley.market/1"\nname = "here"\n' + offer.format("z-1", 720) + offer.format("z-2", 360))
    command = ELASTIC.replace("cluster.toml", "rented.toml")
    run = Running(lead, "rented", f"{command} --steps 100000 --market market.toml --deadline 10h")
    time.sleep(11)  # what is left is written each ten seconds
    began = json.loads((lead.home() / "rented/renting.json").read_text())
    kill_lead(lead)
    run.child.wait(10)
    folder = wait_until_led(hosts["b"], "rented")
    hosts["b"].run("pkill -TERM -f '[-]-succeed'")  # not the agent there
    found = wait_for(lambda: summary_of(hosts["b"], "rented"))
    left = json.loads((folder / "renting.json").read_text())
    assert left["began"] == began["began"]
    # 0.3 a second of both, and the whole time since the beginning.
    assert found["rented"]["paid"] > began["state"]["paid"] > 0 and found["rented"]["paid"] > 0.3 * 11
    assert found["rented"]["spare_s"] < 36000 - 11
    nothing_runs(hosts)
