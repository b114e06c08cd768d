"""`simulate --adapt`: trainings that decide, simulated: policies, conditions, what is kept and said of them."""

import json

import pytest

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
    assert grown.json["knowing_all"] is None
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
    still = simulate(*flags, "--noise-scale", 0, "--json", batch=600, steps=300).json["under_policy"]
    assert (still["last_batch"], still["progress"]) == (600, pytest.approx(300))


@pytest.mark.parametrize("policy", ["adaptdl", "cannikin", "simigrad", "jabas"])
def test_other_policies_of_the_batch(simulate, policy):
    done = simulate("--adapt", "batch", "--policy", policy, "--noise-scale", 30000, "--epoch-samples", 30000, "--batch-limits",
                    "600:20000", "--json", batch=600, steps=600)  # fmt: skip
    assert done.code == 0, done.stderr
    decided = done.json["under_policy"]
    assert decided["policy"] == policy and 600 <= decided["last_batch"] <= 20000 and decided["samples"] >= 360000


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
        (["--adapt", "split", "--micro-batches", 2], None, "--adapt split goes with plans that split the batch alone"),
        (["--adapt", "plan"], {"absences": [{"device": "a:0", "from_s": 1}]},
         "--adapt plan: device 'a:0' goes away"),
    ],
)  # fmt: skip
def test_says_what_is_wrong(simulate, flags, conditions, message):
    done = simulate(*flags, conditions=conditions)
    assert done.code == 2 and message in done.stderr, done.stderr
