"""Runs that decide while they train: by policies, under conditions, and what is left of it."""

import json
import sqlite3

import numpy as np
import pytest
from conftest import CLUSTER, DIGITS

LINKS = """
[[link]]
all = true
bandwidth = "{bandwidth}"
latency = "100us"
"""
FAST = CLUSTER.replace("0.8", "0.6")


@pytest.fixture(scope="module")
def three(workspace, profiled, cnn):
    """Three devices, and what the model's steps take on them."""
    path = workspace / "fast_three.toml"
    path.write_text(FAST + LINKS.format(bandwidth="20Gbps"))
    profiled(cnn, path, "--global-batch", 120)
    return path


@pytest.fixture(scope="module")
def equal(motley, cnn, three, workspace):
    path = workspace / "equal.json"
    done = motley("plan", "-m", cnn, "-C", three, "--global-batch", 120, "--lr", 0.02, "--planner", "equal", "-o", path)
    assert done.code == 0, done.stderr
    return path


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(motley, cnn, three, folder, *flags):
    return motley("run", "-m", cnn, "-C", three, "--data", DIGITS, "--run-dir", folder, "--json", *flags)


@pytest.mark.timed
def test_split_is_learned_from_nothing(motley, cnn, three, equal, tmp_path):
    """Speeds 0.6 : 0.4 : 0.2 from 40:40:40; a, which is slowed, is given less; the losses stay those of one device."""
    slow = tmp_path / "slow.json"
    slow.write_text(json.dumps({"schema": "motley.conditions/1",
                                "slow_downs": [{"device": "a:0", "from_s": 1.5, "factor": 3}]}))  # fmt: skip
    folder = tmp_path / "run"
    done = run(motley, cnn, three, folder, "--plan", equal, "--steps", 110, "--adapt", "split",
               "--profiles", tmp_path / "none.db", "--conditions", slow)  # fmt: skip
    assert done.code == 0, done.stderr
    shares = [each for each in lines(folder / "decisions.jsonl") if each["action"]["do"] == "split"]
    samples = [{share["device"]: share["samples"] for share in each["action"]["shares"]} for each in shares]
    assert all(sum(each.values()) == 120 for each in samples)
    assert max(each["a:0"] for each in samples) > 1.5 * samples[-1]["a:0"]
    assert any(each["action"]["do"] == "tell" and "a:0" == each["action"]["device"]
               for each in lines(folder / "decisions.jsonl"))  # fmt: skip
    alone = run(motley, cnn, three, tmp_path / "alone", "--plan", equal, "--steps", 110, "--adapt", "none",
                "--profiles", tmp_path / "none.db")  # fmt: skip
    np.testing.assert_allclose(done.json["losses"], alone.json["losses"], rtol=2e-3)
    report = motley("report", folder)
    assert "decisions" in report.stdout and "a:0" in report.stdout, report.stdout
    found = motley("report", folder, "--json").json["decisions"]
    assert [each["begins"] for each in found] == [each["begins"] for each in lines(folder / "decisions.jsonl")]
    again = run(motley, cnn, three, tmp_path / "again", "--decisions", folder / "decisions.jsonl", "--steps", 110)
    assert again.code == 0, again.stderr
    assert again.json["losses"] == done.json["losses"]


def test_micro_batches_are_split_alike(motley, cnn, three, tmp_path):
    """Two micro-batches of 60 samples stay two, whose batch norm has the same samples; the quicker get more of each."""
    plan = tmp_path / "plan.json"
    done = motley("plan", "-m", cnn, "-C", three, "--global-batch", 120, "--lr", 0.02, "--batch-split", "40,40,40",
                  "--micro-batches", 2, "-o", plan)  # fmt: skip
    assert done.code == 0, done.stderr
    words = ["--plan", plan, "--steps", 30, "--profiles", tmp_path / "none.db"]
    done = run(motley, cnn, three, tmp_path / "run", *words, "--adapt", "split")
    assert done.code == 0, done.stderr
    plans = [json.loads(each["plan"])["replicas"] for each in lines(tmp_path / "run/decisions.jsonl") if each["plan"]]
    assert len(plans) >= 2
    assert {each["micro_batches"] for replicas in plans for each in replicas} == {2}
    last = {each["regions"][0]["devices"][0]: each["samples"] for each in plans[-1]}
    assert last["a:0"] > last.get("c:0", 0) and sum(last.values()) == 120, plans[-1]
    alone = run(motley, cnn, three, tmp_path / "alone", *words, "--adapt", "none")
    np.testing.assert_allclose(done.json["losses"], alone.json["losses"], rtol=2e-3)


@pytest.mark.timed
def test_plans_are_tried_in_turn_and_remembered(motley, cnn, three, tmp_path):
    """The batch split and one device alone are trained by; what they took counts when a plan is made again."""
    folder, store = tmp_path / "run", tmp_path / "p.db"
    common = ["-m", cnn, "-C", three, "--profiles", store, "--global-batch", 120, "--lr", 0.02]
    done = motley("run", *common, "--data", DIGITS, "--run-dir", folder, "--steps", 60, "--adapt", "plan", "--json")
    assert done.code == 0, done.stderr
    kept = lines(folder / "decisions.jsonl")
    plans = list(dict.fromkeys(each["plan"] for each in kept))
    assert len(plans) >= 2, kept
    assert any(reason in each["why"] for each in kept for reason in ("the fastest of those tried", "as quick as any tried")), kept
    assert len(done.json["losses"]) == 60

    def told(quick):
        """Whether planning goes by the earlier run when all plans took 1 s there, and `quick` 0.1 s."""
        with sqlite3.connect(store) as database:
            database.execute("update prediction set measured = 1 where quantity like 'step of plan %'")
            database.execute("update prediction set measured = 0.1 where id = ?", (quick,))
        answer = motley("plan", *common, "--profile", "never", "--json")
        assert answer.code == 0, answer.stderr
        return "in an earlier run" in answer.json["why"][0]

    with sqlite3.connect(store) as database:
        rows = [row for row, in database.execute("select id from prediction where quantity like 'step of plan %'")]
    assert len(rows) == len(plans), rows
    assert not told(None)  # nothing speaks against what is predicted
    # What was the fastest is chosen (motley/control/planning/planning_test.cc), unless it is what the prediction says, too, or by
    # what was measured of its parts while it was tried none of the best few: so of two plans it may be neither.
    # Before another run: what that measures would count as well.
    assert sum(told(row) for row in rows) < len(rows)
    fixed = motley("run", *common, "--data", DIGITS, "--run-dir", tmp_path / "fixed", "--steps", 60, "--adapt", "none",
                   "--json")  # fmt: skip
    np.testing.assert_allclose(done.json["losses"], fixed.json["losses"], rtol=1e-3)


def test_a_stopped_run_goes_on_by_the_plan_it_had(motley, cnn, three, equal, tmp_path):
    folder = tmp_path / "run"
    flags = ["--plan", equal, "--adapt", "split", "--profiles", tmp_path / "none.db"]
    assert run(motley, cnn, three, folder, *flags, "--steps", 40).code == 0
    state = json.loads((folder / "checkpoint/latest/policy.json").read_text())
    assert state["schema"] == "motley.policy/1"
    done = run(motley, cnn, three, folder, *flags, "--steps", 60)
    assert done.code == 0, done.stderr
    kept = lines(folder / "decisions.jsonl")
    start = [at for at, each in enumerate(kept) if each["policy"] == "start"]
    assert [kept[at]["begins"] for at in start] == [0, 40]
    before = [each["plan"] for each in kept[: start[1]] if each["plan"]]
    assert kept[start[1]]["plan"] == before[-1] == state["plans"][state["current"]]
