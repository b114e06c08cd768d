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

    def call(*flags, conditions=None, planner="split"):
        words = ["simulate", "-m", cnn, "-C", cluster, "--global-batch", 12000, "--planner", planner,
                 "--profile", "never", "--steps", 120, *flags]  # fmt: skip
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


def test_plans_are_tried_in_turn(simulate):
    done = simulate("--adapt", "plan", "--json", planner="auto")
    assert done.code == 0, done.stderr
    assert done.json["under_policy"]["steps"] == 120
    assert done.json["under_policy"]["total_s"] >= done.json["knowing_all"]["total_s"]


@pytest.mark.parametrize(
    "flags, conditions, message",
    [
        (["--policy", "even"], None, "--policy goes with --adapt plan or --adapt split"),
        (["--decisions", "x"], None, "--decisions goes with --adapt plan or --adapt split"),
        (["--adapt", "batch"], None, "--adapt: found 'batch', wanted plan or split"),
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
