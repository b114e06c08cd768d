"""`simulate --adapt`: trainings that decide, simulated: policies, conditions, what is kept and said of them."""

import json

import pytest
from conftest import sampled

KINDS = """schema = "motley.cluster/1"
name = "kinds"
[[node]]
name = "a"
host = "h1"
[[node.device]]
kind = "a100-40g"
[[node]]
name = "b"
host = "h2"
[[node.device]]
kind = "v100-16g"
[[node]]
name = "c"
host = "h3"
[[node.device]]
kind = "t4"
[[link]]
all = true
bandwidth = "10Gbps"
latency = "50us"
"""


@pytest.fixture
def simulate(motley, cnn, tmp_path):
    cluster = tmp_path / "kinds.toml"
    cluster.write_text(KINDS)

    def call(*flags, conditions=None, planner="split", batch=12000, steps=120):
        words = ["simulate", "-m", cnn, "-C", cluster, "--global-batch", batch, "--planner", planner,
                 "--profile", "never", "--steps", steps, *flags]  # fmt: skip
        if conditions is not None:
            path = tmp_path / "conditions.json"
            path.write_text(json.dumps({"schema": "motley.conditions/1"} | conditions))
            words += ["--conditions", path]
        return motley(*words)

    return call


def shares(decision):
    return {share["device"]: share["samples"] for share in decision["action"]["shares"]}


def test_a_device_that_slows_is_given_less(simulate, tmp_path):
    path = tmp_path / "decisions.jsonl"
    flags = ["--adapt", "split", "--decisions", path]
    slow = {"slow_downs": [{"device": "a:0", "from_s": 1, "factor": 3}]}
    done = simulate(*flags, "--json", conditions=slow)
    assert done.code == 0, done.stderr
    decided, planned, knowing = (done.json[key] for key in ("under_policy", "as_planned", "knowing_all"))
    assert (decided["policy"], decided["adapt"], planned["policy"]) == ("motley", "split", "none")
    assert knowing["total_s"] < decided["total_s"] < planned["total_s"]
    assert decided["steps"] == knowing["steps"] == 120
    assert decided["steps_per_s"] == pytest.approx(120 / decided["total_s"])
    splits = [each for each in decided["decisions"] if each["action"]["do"] == "split"]
    begun = json.loads(json.loads(path.read_text().splitlines()[0])["plan"])
    (before,) = [each["samples"] for each in begun["replicas"] if each["regions"][0]["devices"] == ["a:0"]]
    assert shares(splits[-1])["a:0"] < 0.7 * before
    told = [each for each in decided["decisions"] if each["action"]["do"] == "tell"]
    assert {each["action"]["device"] for each in told} == {"a:0"}
    # What was expected came, but for what exchanges slow compute by.
    assert splits[-1]["came_s"] == pytest.approx(splits[-1]["expected_s"], rel=0.1)
    kept = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["begins"] for each in kept] == [each["begins"] for each in decided["decisions"]]
    assert json.loads(kept[-1]["plan"])["schema"] == "motley.plan/1"
    text = simulate(*flags, conditions=slow).stdout
    assert "knowing all" in text and "a:0: takes 2" in text and "times as long as before" in text and "expected" in text, text
    assert simulate(*flags, "--json", conditions=slow).json == done.json


def test_devices_go_and_come_back(simulate):
    away = {"absences": [{"device": "b:0", "from_s": 0.5, "until_s": 1.5}], "recovery": {"detection_s": 0.2}}
    for policy in ("motley", "even"):
        done = simulate("--adapt", "split", "--policy", policy, "--json", conditions=away)
        assert done.code == 0, done.stderr
        decided = done.json["under_policy"]
        assert decided["steps"] == 120 and decided["lost_steps"] == 1 and decided["stopped"] is None
        assert 0.2 < decided["lost_s"] < 0.3
        splits = [each for each in decided["decisions"] if each["action"]["do"] == "split"]
        gone = next(i for i, each in enumerate(splits) if "b:0 is gone" in each["why"])
        assert "b:0" not in shares(splits[gone]) and "b:0" in shares(splits[-1])
    never = {"absences": [{"device": device, "from_s": 1} for device in ("a:0", "b:0", "c:0")]}
    ended = simulate("--adapt", "split", conditions=never)
    assert ended.code == 0 and "stopped, after" in ended.stdout, ended.stdout


def test_a_batch_that_grows_goes_on_without_a_device(simulate):
    """Samples of a step that was lost are taken once; the device is missing in the split while it is away."""
    away = {"absences": [{"device": "a:0", "from_s": 0.5, "until_s": 1.5}], "recovery": {"detection_s": 0.2}}
    flags = ["--adapt", "batch", "--noise-scale", "30000", "--batch-limits", "6000:60000", "--json"]
    done = simulate(*flags, conditions=away, steps=300)
    assert done.code == 0, done.stderr
    decided = done.json["under_policy"]
    assert decided["stopped"] is None and decided["lost_steps"] == 1
    batches = [each for each in decided["decisions"] if each["action"]["do"] == "batch"]
    gone = next(i for i, each in enumerate(batches) if "'a:0' leaves" in each["why"] or "a:0 is gone" in each["why"])
    back = next(i for i, each in enumerate(batches) if "a:0" in shares(each) and i > gone)
    assert all("a:0" not in shares(each) for each in batches[gone:back])
    assert decided["samples"] >= 300 * 12000 > decided["samples"] - decided["last_batch"]
    # Nobody decides: the same batch, split again.
    assert done.json["as_planned"]["samples"] == 300 * 12000 and done.json["as_planned"]["stopped"] is None


def test_plans_are_tried_in_turn(simulate):
    done = simulate("--adapt", "plan", "--json", planner="auto")
    assert done.code == 0, done.stderr
    assert done.json["under_policy"]["steps"] == 120
    assert done.json["under_policy"]["total_s"] >= done.json["knowing_all"]["total_s"]


def test_a_batch_grows_with_its_noise(simulate, tmp_path):
    """By policy, where the batch is too small for the devices: more progress a second; without noise it stays."""
    path = tmp_path / "decisions.jsonl"
    flags = ["--adapt", "batch", "--batch-limits", "500:20000", "--change-pause", 0.001]
    grown = simulate(*flags, "--noise-scale", "0:20000,400000:80000", "--decisions", path, "--json", batch=600, steps=2000)
    assert grown.code == 0, grown.stderr
    decided, planned = grown.json["under_policy"], grown.json["as_planned"]
    # Who knows all takes less time to the same progress, by whatever batches.
    bound = grown.json["knowing_all"]
    assert bound["progress"] == pytest.approx(decided["progress"]) and 500 <= bound["last_batch"] <= 20000
    assert bound["total_s"] < decided["total_s"] < 1.5 * bound["total_s"]
    assert decided["over_bound"] == pytest.approx(decided["total_s"] / bound["total_s"] - 1)
    # As many samples, in fewer steps.
    assert 2000 * 600 <= decided["samples"] < 2000 * 600 + 20000 and decided["steps"] < 1500
    assert (planned["samples"], planned["steps"], planned["last_batch"]) == (2000 * 600, 2000, 600)
    assert planned["progress"] == pytest.approx(2000)
    assert 1000 < decided["last_batch"] <= 20000
    assert decided["progress"] < 2000 < 1.5 * decided["progress"]
    assert decided["progress"] / decided["total_s"] > 1.1 * planned["progress"] / planned["total_s"]
    batches = [each for each in decided["decisions"] if each["action"]["do"] == "batch" and each["policy"] == "motley"]
    assert "noise scale" in batches[0]["why"]
    assert sum(shares(batches[-1]).values()) == decided["last_batch"]
    assert [json.loads(line)["begins"] for line in path.read_text().splitlines()] == \
        [each["begins"] for each in decided["decisions"]]  # fmt: skip
    text = simulate(*flags, "--noise-scale", "0:20000,400000:80000", batch=600, steps=2000).stdout
    assert "progress is in steps of the first batch" in text and "samples, the batch split" in text, text
    assert "knowing all" in text and "over the best batch at each moment" in text, text
    still = simulate(*flags[:2], "--batch-limits", "600:20000", "--noise-scale", 0, "--json", batch=600, steps=300).json["under_policy"]
    assert (still["last_batch"], still["progress"]) == (600, pytest.approx(300))


@pytest.mark.parametrize("policy", sampled(["adaptdl", "cannikin", "simigrad", "jabas"]))
def test_other_policies_of_the_batch(simulate, policy):
    done = simulate("--adapt", "batch", "--policy", policy, "--noise-scale", 30000, "--epoch-samples", 30000, "--batch-limits",
                    "600:20000", "--json", batch=600, steps=600)  # fmt: skip
    assert done.code == 0, done.stderr
    decided = done.json["under_policy"]
    assert decided["policy"] == policy and 600 <= decided["last_batch"] <= 20000 and decided["samples"] >= 360000


@pytest.mark.parametrize("policy", sampled(["motley", "adaptdl", "cannikin", "simigrad", "jabas"]))
def test_batches_in_micro_batches(simulate, policy, tmp_path):
    """Shares of all devices are multiples of the plan's micro-batches, also of who knows all, and where one goes away."""
    path = tmp_path / "decisions.jsonl"
    away = {"absences": [{"device": "b:0", "from_s": 0.5, "until_s": 1.5}]} if policy == "motley" else {}
    done = simulate("--adapt", "batch", "--policy", policy, "--noise-scale", 300000, "--epoch-samples", 300000,
                    "--batch-limits", "11990:60000", "--micro-batches", 8, "--batch-split",
                    "8000,2400,1600", "--decisions", path, "--json", batch=12000, steps=300,
                    conditions=away, planner="manual")  # fmt: skip
    assert done.code == 0, done.stderr
    decided, bound = done.json["under_policy"], done.json["knowing_all"]
    assert decided["stopped"] is None and 12000 < decided["last_batch"] <= 60000
    assert decided["last_batch"] % 8 == bound["last_batch"] % 8 == 0
    plans = [json.loads(line)["plan"] for line in path.read_text().splitlines()]
    replicas = [each for plan in plans if plan for each in json.loads(plan)["replicas"]]
    assert all(each["samples"] % 8 == 0 and each["micro_batches"] == 8 for each in replicas)
    assert any(len(json.loads(plan)["replicas"]) > 1 for plan in plans if plan)
    # What was believed of such steps is what they take.
    batches = [each for each in decided["decisions"] if each["action"]["do"] == "batch" and each["expected_s"] and each["came_s"]]
    assert batches[-1]["came_s"] == pytest.approx(batches[-1]["expected_s"], rel=0.2)


@pytest.mark.parametrize(
    "flags, conditions, message",
    [
        (["--policy", "even"], None, "--policy goes with --adapt plan, split or batch"),
        (["--decisions", "x"], None, "--decisions goes with --adapt plan, split or batch"),
        (["--adapt", "btach"], None, "--adapt: found 'btach', wanted plan, split or batch"),
        (["--adapt", "batch"], None, "--adapt batch: a simulation has no gradients; say their noise scale by --noise-scale"),
        (["--adapt", "batch", "--noise-scale", "5:"], None, "--noise-scale: found '5:', wanted a number of samples"),
        (["--noise-scale", 5], None, "--noise-scale and --epoch-samples go with --adapt batch"),
        (["--adapt", "split", "--batch-limits", "1:2"], None, "--batch-limits, --batch-rule and --objective go with --adapt batch"),
        (["--adapt", "batch", "--noise-scale", 5, "--policy", "adaptdl"], None, "add --epoch-samples"),
        (["--adapt", "batch", "--noise-scale", 5, "--policy", "lb-bsp"], None, "unknown policy 'lb-bsp', wanted one of motley adaptdl"),
        (["--adapt", "split", "--policy", "evn"], None,
         "unknown policy 'evn', wanted one of motley even hetseq adaptdl lb-bsp cannikin, did you mean 'even'?"),
        (["--adapt", "split"], {"slow_downs": [{"device": "z:0", "factor": 2}]},
         "slow-down of z:0: the cluster has no such device"),
        (["--adapt", "plan"], {"absences": [{"device": "a:0", "from_s": 1}]},
         "--adapt plan: device 'a:0' goes away"),
    ],
)  # fmt: skip
def test_says_what_is_wrong(simulate, flags, conditions, message):
    done = simulate(*flags, conditions=conditions)
    assert done.code == 2 and message in done.stderr, done.stderr


def test_the_bound_of_the_batch_is_that_of_the_best_on_a_grid(simulate):
    """Where noise and devices stay as they are: one batch's best split from the first step to the last."""
    noise, first = 30000, 600
    flags = ["--adapt", "batch", "--noise-scale", noise, "--batch-limits", "500:20000", "--json"]
    done = simulate(*flags, batch=first, steps=400)
    assert done.code == 0, done.stderr
    done = done.json
    bound, progress = done["knowing_all"], done["under_policy"]["progress"]

    def least(batch):
        """Seconds to the progress by steps of so many samples, by the plan of the split planner."""
        step = simulate("--adapt", "split", "--policy", "even", "--json", batch=batch, steps=2).json["as_planned"]["step_s_median"]
        return progress * step / (batch / first * (noise + first) / (noise + batch))

    grid = {round(600 * (20000 / 600) ** (i / 23)): 0.0 for i in range(24)}
    found = {batch: least(batch) for batch in grid}
    best = min(found.values())
    # The grids differ: 1.09 times apart here, 1.06 there; and steps come in whole nanoseconds.
    assert bound["total_s"] == pytest.approx(best, rel=2e-3), (bound, found)
    assert 0.9 < bound["last_batch"] / min(found, key=found.get) < 1.1
    assert done["under_policy"]["over_bound"] > 0


def test_the_bound_of_the_batch_follows_noise_and_devices(simulate):
    """Twice as slow in the middle: the bound lies between that of slow and that of quick devices."""
    flags = ["--adapt", "batch", "--noise-scale", 30000, "--batch-limits", "500:20000", "--json"]
    quick = simulate(*flags, batch=600, steps=300).json["knowing_all"]
    middle = quick["total_s"] / 2
    slow_downs = [{"device": f"{name}:0", "from_s": middle, "factor": 2} for name in "abc"]
    slow = simulate(*flags, batch=600, steps=300, conditions={"slow_downs": slow_downs}).json
    rate = [each["progress"] / each["total_s"] for each in (quick, slow["knowing_all"])]
    assert 0.5 * rate[0] < rate[1] < rate[0]
    assert slow["knowing_all"]["total_s"] < slow["under_policy"]["total_s"]
    # Noise that grows with the samples makes the last batch larger.
    grown = simulate(*flags[:3], "0:1000,100000:200000", *flags[4:], batch=600, steps=300).json["knowing_all"]
    assert grown["last_batch"] > 2 * quick["last_batch"] or grown["last_batch"] == 20000


MARKET = """schema = "motley.market/1"
name = "rented"
[[offer]]
kind = "v100-16g"
zone = "z-1"
spot = true
price_per_hour = 1
start_cold = "2s"
losses_per_hour = 0
notice = "{notice}"
[[offer]]
kind = "t4"
zone = "z-1"
price_per_hour = 2
start_cold = "2s"
"""
RENTED = KINDS.replace('host = "h2"', 'host = "h2"\nspot = true\nzone = "z-1"').replace('host = "h3"', 'host = "h3"\nzone = "z-1"')


@pytest.fixture
def rent(simulate, tmp_path):
    """a is one's own, b a spot machine, and c on demand is not there yet."""

    def call(*flags, deadline="1000h", away=(), notice="1ms", steps=2000, absent=("c:0",), adapt=("--adapt", "split")):
        (tmp_path / "kinds.toml").write_text(RENTED)
        (tmp_path / "market.toml").write_text(MARKET.format(notice=notice))
        words = [word for device in absent for word in ("--absent", device)]
        conditions = {"absences": [{"device": "b:0", "from_s": at, "until_s": until} for at, until in away]}
        return simulate(*adapt, *words, "--market", tmp_path / "market.toml", "--deadline", deadline, "--json", *flags,
                        conditions=conditions, steps=steps)  # fmt: skip

    return call


def rents(done):
    assert done.code == 0, done.stderr
    decided = done.json["under_policy"]
    return decided, [each["action"] for each in decided["decisions"] if each["action"]["do"] == "rent"]


def test_a_lost_machine_is_rented_again(rent):
    """Where the deadline wants it; the same loss without decisions makes it late."""
    whole, asked = rents(rent("--rent-policy", "none"))
    assert asked == [] and whole["rent"]["lost"] == 0 and whole["stopped"] is None
    near = f"{whole['total_s'] + 8}s"
    done = rent(deadline=near, away=[(3, 4)])
    decided, asked = rents(done)
    assert asked and all(each["count"] == 1 and each["zone"] == "z-1" for each in asked)
    assert decided["rent"]["came"] == decided["rent"]["asked"] == len(asked)
    assert decided["rent"]["lost"] == decided["lost_steps"] == 1 and decided["rent"]["spare_s"] > 0
    assert whole["total_s"] / 3600 < decided["rent"]["paid"] < 3 * whole["total_s"] / 3600
    still = done.json["as_planned"]
    assert still["rent"]["asked"] == 0 and still["rent"]["spare_s"] < 0 and still["rent"]["policy"] == "none"
    assert done.json["knowing_all"] is None
    # A notice comes early enough for a split without it.
    told, _ = rents(rent(deadline=near, away=[(3, 4)], notice="1s"))
    assert told["lost_steps"] == 0 and told["rent"]["lost"] == 1
    # It is away when it would come: on demand, then.
    gone, asked = rents(rent(deadline=near, away=[(3, 1000)]))
    assert any(not each["spot"] for each in asked) and gone["rent"]["came"] == 1, asked


def test_who_is_in_time_gives_back(rent):
    decided, asked = rents(rent(deadline="200s"))
    assert [each["count"] for each in asked] == [-1]
    assert decided["rent"]["returned"] == 1 and decided["lost_steps"] == 0 and decided["rent"]["lost"] == 0
    kept, _ = rents(rent("--rent-policy", "greedy", deadline="200s"))
    assert kept["rent"]["paid"] > 2 * decided["rent"]["paid"]
    text = [each["why"] for each in decided["decisions"] if each["policy"] == "market"]
    assert any("gives back b, the others are in time and cost" in each for each in text), text


def test_renting_is_of_machines_and_splits(rent, simulate):
    for flags, message in (((), "add --adapt split or batch"), (("--adapt", "plan"), "add --adapt split or batch")):
        done = rent(adapt=flags)
        assert done.code == 2 and message in done.stderr, done.stderr
    done = rent(absent=("d:0",))
    assert done.code == 2 and "d:0" in done.stderr, done.stderr
    done = simulate("--adapt", "split", "--absent", "c:0")
    assert done.code == 2 and "--absent: of machines that may be rented; give --market" in done.stderr
