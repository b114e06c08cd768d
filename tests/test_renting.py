"""`run --elastic --market`: machines that are rented while a run trains. Real processes; the market's machines are devices
of this one, which join as a hook of the run has them join."""

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
from conftest import BUILD, DIGITS

NODE = """[[node]]
name = "{name}"
{keys}
  [[node.device]]
  kind = "cpu"
  speed = 0.3
"""
SPOT_1, SPOT_2, ON_DEMAND = 'spot = true\nzone = "z-1"', 'spot = true\nzone = "z-2"', 'zone = "z-1"'


def offer(zone, price, keys="", start="20s"):
    return f'[[offer]]\nkind = "cpu"\nzone = "{zone}"\nspeed = 0.3\nprice_per_hour = {price}\nstart_cold = "{start}"\n{keys}\n'


def market_of(*offers):
    return 'schema = "motley.market/1"\nname = "here"\n' + "".join(offers)


STAYS = offer("z-3", 20)
CHEAP = market_of(STAYS, offer("z-1", 1, "spot = true"), offer("z-2", 0.5, "spot = true"), offer("z-1", 3))


NODES = {"a": 'zone = "z-3"', "b": SPOT_1, "c": SPOT_2, "d": ON_DEMAND}
CLUSTER = 'schema = "motley.cluster/1"\nname = "four"\n' + "".join(
    NODE.format(name=name, keys=keys) for name, keys in NODES.items())  # fmt: skip


@pytest.fixture(scope="module")
def priced(profiled, cnn, tmp_path_factory):
    """Times of four devices of this machine, by which plans are priced."""
    path = tmp_path_factory.mktemp("priced") / "cluster.toml"
    path.write_text(CLUSTER)
    profiled(cnn, path, "--global-batch", 60)


@pytest.fixture
def files(tmp_path):
    """A machine on demand and a spot machine, and another one of each that are not there at first; a market of them."""
    (tmp_path / "cluster.toml").write_text(CLUSTER)
    (tmp_path / "market.toml").write_text(CHEAP)
    return tmp_path


# A deadline of hours is kept in so many steps also beside other work, by which each takes ten times as long.
STEPS = 100_000


def words_of(files, model, *flags, steps=STEPS, absent=("c:0", "d:0")):
    away = [word for device in absent for word in ("--absent", device)]
    return ["run", "-m", model, "-C", files / "cluster.toml", "--data", DIGITS, "--global-batch", 240, "--steps", steps,
            "--profile", "model", "--run-dir", files / "run", "--elastic", "--adapt", "none", "--planner", "equal",
            *away, "--market", files / "market.toml", *flags]  # fmt: skip


RUNNING = []


@pytest.fixture(autouse=True)
def nothing_runs_on():
    """A run that a test leaves behind, as it fails, ends with it."""
    yield
    while RUNNING:
        with RUNNING.pop() as child:
            child.kill()


class Renting:
    """A run under way whose hook says what it was told, and has the device join."""

    def __init__(self, files, model, environment, *flags, joins=True, **more):
        self.files, self.run_dir, self.told = files, files / "run", files / "told"
        hook = f'echo "$MOTLEY_RENT_SPOT $MOTLEY_RENT_ZONE $MOTLEY_RENT_COUNT $MOTLEY_RENT_DEVICES" >> {self.told}'
        if joins:
            hook += f'; {BUILD / "motley"} join "$MOTLEY_RENT_JOIN" --device "$MOTLEY_RENT_DEVICES" >&2'
        words = words_of(files, model, *flags, "--rent-hook", hook, **more)
        self.child = subprocess.Popen([str(BUILD / "motley"), *map(str, words)], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True, env=environment)  # fmt: skip
        RUNNING.append(self.child)
        self.until(lambda: self.steps() > 5)

    def steps(self):
        log = self.run_dir / "log.jsonl"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def until(self, happens):
        end = time.monotonic() + 60
        while not happens() and time.monotonic() < end:
            assert self.child.poll() is None, self.child.communicate()
            time.sleep(0.05)
        assert happens(), self.decisions()

    def decisions(self):
        lines = (self.run_dir / "decisions.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines if '"market"' in line and line.endswith("}")]

    def asked(self):
        return self.told.read_text().splitlines() if self.told.exists() else []

    def kill(self, rank):
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes().decode().replace("\0", " ")
            except OSError:
                continue
            if f"{self.run_dir}/job.json --rank {rank} " in command:
                os.kill(int(entry.name), signal.SIGKILL)
                return
        raise AssertionError(f"no process of rank {rank}")

    def processes(self):
        return [device["name"] for device in json.loads((self.run_dir / "job.json").read_text())["devices"]]

    def stop(self, code=75):
        if self.child.poll() is None and code == 75:
            self.child.send_signal(signal.SIGTERM)
        out, err = self.child.communicate(timeout=60)
        assert self.child.returncode == code, (out, err)
        return err


@pytest.mark.usefixtures("priced")
def test_a_loss_is_replaced_where_that_is_cheapest_and_prices_decide(files, cnn, environment):
    """A second machine makes the first be paid for less long. Which one, prices say."""
    run = Renting(files, cnn, environment, "--deadline", "100h")
    run.kill(run.processes().index("b:0"))
    run.until(lambda: run.asked() == ["1 z-2 1 c:0"])  # 0.5 an hour there, 1 in z-1
    run.until(lambda: any("c has come" in each["why"] for each in run.decisions()))
    (asks,) = [each for each in run.decisions() if each["action"]["do"] == "rent"]
    assert asks["action"] == {"do": "rent", "kind": "cpu", "zone": "z-2", "spot": True, "count": 1}
    assert asks["policy"] == "market" and "b is lost; left: " in asks["why"]
    left = {each["what"]: each for each in asks["alternatives"]}
    assert set(left) == {"as it is", "1 cpu spot z-1", "1 cpu spot z-2", "1 cpu on demand z-1"}
    assert left["1 cpu spot z-2"]["cost"] < left["1 cpu spot z-1"]["cost"] < left["as it is"]["cost"]
    assert left["1 cpu spot z-2"]["time_s"] < left["as it is"]["time_s"]
    assert asks["expected_s"] > 0
    # Dear in z-2, the next one comes from z-1, however much faster a few measured steps made c look.
    dear = market_of(STAYS, offer("z-1", 0.7, "spot = true"), offer("z-2", 50, "spot = true"), offer("z-1", 3))
    (files / "market.toml").write_text(dear)
    run.until(lambda: any("costs 50 an hour, not 0.5" in each["why"] for each in run.decisions()))
    run.kill(run.processes().index("c:0"))
    run.until(lambda: run.asked()[1:] == ["1 z-1 1 b:0"])
    run.until(lambda: any("b has come" in each["why"] for each in run.decisions()))
    err = run.stop()
    assert "c is lost; left: " in err and "to the deadline" in err
    rented = json.loads((run.run_dir / "summary.json").read_text())["rented"]
    assert rented["asked"] == 2 and rented["paid"] > 0 and rented["spare_s"] > 3600
    lives = json.loads((run.run_dir / "lifetimes.json").read_text())["machines"]
    assert {(each["name"], each.get("lost", False)) for each in lives} >= {("b life 1", True), ("c life 1", True)}


@pytest.mark.usefixtures("priced")
def test_a_deadline_that_is_too_near_goes_on_demand(files, cnn, environment):
    """And then, as that is late, too, spot machines are asked for beside."""
    run = Renting(files, cnn, environment, "--deadline", "10min", steps=1_000_000_000)
    run.until(lambda: run.asked()[:2] == ["0 z-1 1 d:0", "1 z-2 1 c:0"])
    run.until(lambda: any("d has come" in each["why"] for each in run.decisions()))
    asks = next(each for each in run.decisions() if each["action"]["do"] == "rent")
    assert "on demand all that can be had, as the deadline is too near" in asks["why"]
    run.stop()


@pytest.mark.usefixtures("priced")
def test_who_is_in_time_goes_on_alone(files, cnn, environment, motley):
    """A machine of one's own costs nothing: a loss that the deadline allows is not replaced."""
    path = files / "cluster.toml"
    path.write_text(path.read_text().replace(f'name = "a"\n{NODES["a"]}', 'name = "a"'))
    run = Renting(files, cnn, environment, "--deadline", "1000h")
    run.kill(run.processes().index("b:0"))
    run.until(lambda: any("goes on as it is, those that are there are in time" in each["why"] for each in run.decisions()))
    assert run.asked() == []
    told = next(each for each in run.decisions() if each["action"]["do"] == "tell")
    assert told["alternatives"][0] == {"what": "as it is", "time_s": told["alternatives"][0]["time_s"], "cost": 0}
    run.stop()
    # The same command goes on; what was paid, and when it began, count.
    state = json.loads((run.run_dir / "renting.json").read_text())
    words = words_of(files, cnn)
    late = dict(state, began=state["began"] - 7200)
    (run.run_dir / "renting.json").write_text(json.dumps(late))
    done = motley(*words, "--deadline", "1h")
    assert done.code == 2 and "began 2.0 h ago" in done.stderr and "it is past" in done.stderr
    done = motley(*words, "--deadline", "1000h", "--budget", state["state"]["paid"])
    assert done.code == 2 and "its budget is spent; give a larger --budget" in done.stderr


@pytest.mark.usefixtures("priced")
def test_a_notice_asks_before_the_machine_is_gone(files, cnn, environment):
    notice = files / "notice"
    run = Renting(files, cnn, environment, "--deadline", "100h", "--notice", f"file:{notice}")
    notice.write_text("20 b:0")
    run.until(lambda: run.asked() == ["1 z-2 1 c:0"])
    (asks,) = [each for each in run.decisions() if each["action"]["do"] == "rent"]
    left = float(re.search(r"b will be gone in ([0-9.]+) s", asks["why"])[1])
    assert 10 < left <= 20  # of the 20 s of the notice some have passed, more on a busy machine
    run.stop()


@pytest.mark.usefixtures("priced")
def test_a_dear_machine_is_given_back(files, cnn, environment):
    """One's own is in time alone. The run goes on without the machine, which leaves before the hook is told, and without a loss."""
    path = files / "cluster.toml"
    path.write_text(path.read_text().replace(f'name = "b"\n{NODES["b"]}', 'name = "b"'))
    others = [offer("z-1", 1, "spot = true", "1s"), offer("z-2", 3, "spot = true", "1s"), offer("z-1", 3, start="1s")]
    (files / "market.toml").write_text(market_of(STAYS, *others))
    returned = files / "returned"
    hook = f'echo "$MOTLEY_RENT_SPOT $MOTLEY_RENT_ZONE $MOTLEY_RENT_NODES $MOTLEY_RENT_DEVICES" >> {returned}'
    run = Renting(files, cnn, environment, "--deadline", "5h", "--return-hook", hook, steps=2000)
    run.until(returned.exists)
    assert returned.read_text() == "0 z-3 a a:0\n" and run.asked() == []
    (gives,) = [each for each in run.decisions() if each["action"]["do"] == "rent"]
    assert gives["action"]["count"] == -1 and "gives back a, the others are in time and cost" in gives["why"]
    run.until(lambda: any("a was given back" in each["why"] for each in run.decisions()))
    run.stop()
    summary = json.loads((run.run_dir / "summary.json").read_text())
    assert summary["lost_steps"] == 0


@pytest.mark.usefixtures("priced")
def test_a_spent_budget_stops_the_run(files, cnn, environment):
    (files / "market.toml").write_text(market_of(STAYS, offer("z-1", 3600, "spot = true"), offer("z-2", 3600, "spot = true")))
    path = files / "cluster.toml"
    path.write_text(path.read_text().replace('name = "d"\nzone = "z-1"', 'name = "d"\nspot = true\nzone = "z-2"'))
    run = Renting(files, cnn, environment, "--deadline", "1h", "--budget", 8, joins=False, steps=10 * STEPS)
    out, err = run.child.communicate(timeout=60)
    assert run.child.returncode == 75 and "the budget of 8 is spent: stopping, with a checkpoint" in err, (out, err)
    assert json.loads((run.run_dir / "summary.json").read_text())["rented"]["paid"] >= 8
