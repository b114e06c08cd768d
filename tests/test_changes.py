"""A training goes on by other plans while it runs: splits, operators split over devices, stages, one device alone, with
devices that are idle in between. The result is that of one device, and a repetition has the same bits."""

import json

import pytest
from conftest import SLOW
from parity import LIMIT, NAMES, Family, differences

BEGINS = [0, 3, 4, 9, 13, 17]  # of 20 steps


def plans_of(motley, family, cluster):
    """Texts of plans that differ as much as plans can."""
    ways = [
        ["--planner", "equal"],
        ["--exclude", "a:0", "--exclude", "c:0"],
        ["--planner", "random", "--seed", 3],
        ["--planner", "random", "--seed", 8],
        ["--exclude", "b:0", "--planner", "split"],
        ["--planner", "random", "--seed", 21],
    ]
    texts = []
    for way in ways:
        path = family.folder / "drawn.json"
        done = motley("plan", "-m", family.path, "-C", cluster, "--global-batch", family.batch, "--lr", family.lr,
                      "--profile", "model", "-o", path, *way)  # fmt: skip
        assert done.code == 0, done.stderr
        texts.append(path.read_text())
    return texts


def decision(step, plan):
    return {"policy": "test", "seen_step": step, "at": 0.0, "action": {"do": "plan", "plan": 0}, "expected_s": None,
            "why": "because", "begins": step, "came_s": None, "before_s": None, "plan": plan}  # fmt: skip


@pytest.mark.parametrize("name", NAMES if SLOW else ["resnet"])
def test_changed_plans_equal_one_device(motley, profiled, mlp, cluster, environment, tmp_path, name):
    profiled(mlp, cluster, "--global-batch", 60)
    family = Family(name, tmp_path, cluster, environment)
    texts = plans_of(motley, family, cluster)
    path = tmp_path / "decisions.jsonl"
    path.write_text("".join(json.dumps(decision(*each)) + "\n" for each in zip(BEGINS, texts, strict=True)))
    found = family.run("changing", 5, "--decisions", path)
    loss, worst, where = differences(found, family.reference(5))
    assert max(loss, worst) < LIMIT, (name, loss, worst, where)
    kept = [json.loads(line) for line in (family.folder / "changing/decisions.jsonl").read_text().splitlines()]
    assert [each["begins"] for each in kept] == BEGINS
    assert [each["plan"] for each in kept] == texts
    again = family.run("again", 5, "--decisions", family.folder / "changing/decisions.jsonl")
    assert again.losses == found.losses
    assert all((again.state[key] == value).all() for key, value in found.state.items())
