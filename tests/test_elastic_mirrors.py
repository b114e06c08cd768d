"""Elastic runs by plans in which devices keep parts of the model: others have mirrors of them, so that a loss costs a
step at most, and no checkpoint. What they train is what one device trains."""

import json
import random
import re

import pytest
from conftest import SLOW, sampled
from parity import LIMIT, SGD, Family, differences
from test_elastic import conditions, count_instructions, family, fault, membership, priced, trained_mlp  # noqa: F401

pytestmark = pytest.mark.usefixtures("priced")
SURVIVE = ["--elastic", "--adapt", "none", "--survive", 1]
DRAWN = {}  # the seed of a plan that was found, by its kind


def plans(family, run_dir):
    lines = (family.folder / run_dir / "decisions.jsonl").read_text().splitlines()
    return [json.loads(json.loads(line)["plan"]) for line in lines]


def has_stages(plan):
    return any(len(replica["regions"]) > 1 for replica in plan["replicas"])


def keeps_parts(plan):
    """Devices share operators, and parameters lie in parts."""
    (region, *others) = plan["replicas"][0]["regions"]
    return not others and any(form != "whole" for form in region.get("parameters", {}).values())


def mirrors(family, run_dir):
    return re.findall(r"^buffer %\d+: mirror .*$", (family.folder / run_dir / "program.txt").read_text(), re.M)


def train(family, name, faults, *flags, seed=5, wanted=None):
    found = family.run(name, seed, *SURVIVE, "--conditions", conditions(family.folder, faults=faults), *flags)
    loss, worst, where = differences(found, wanted or family.reference(seed))
    assert max(loss, worst) < LIMIT, (name, loss, worst, where)
    events = membership(family, name)
    assert all(each["lost_steps"] <= 1 for each in events), events
    return events


def find_plan(motley, family, cluster, is_wanted, *flags):
    """The first drawn plan of that kind, of one replica, that uses all three devices: its file and seed."""
    path = family.folder / "plan.json"
    for seed in [*DRAWN.get(is_wanted, []), *range(200)]:
        words = ["plan", "-m", family.path, "-C", cluster, "--global-batch", family.batch, "--seed", seed,
                 "--profile", "model", "--planner", "random", "--lr", family.lr, "-o", path, *flags]  # fmt: skip
        assert motley(*words).code == 0
        plan = json.loads(path.read_text())
        devices = {d for replica in plan["replicas"] for region in replica["regions"] for d in region["devices"]}
        if len(plan["replicas"]) == 1 and len(devices) == 3 and is_wanted(plan):
            DRAWN[is_wanted] = [seed]
            return path, seed
    raise AssertionError("none was drawn")


@pytest.mark.parametrize("is_wanted, optimizer", sampled([(has_stages, "sgd"), (has_stages, "adam"), (keeps_parts, "adam"), (keeps_parts, "sgd")]))
def test_a_kill_before_any_instruction_does_not_show(motley, family, cluster, is_wanted, optimizer):
    recipe = ["--optimizer", optimizer, *(["--eps", 1e-2] if optimizer == "adam" else [])]
    path, seed = find_plan(motley, family, cluster, is_wanted, *recipe)
    wanted = family.eager(plan={"optimizer": SGD | {"kind": optimizer, "lr": family.lr, **({"eps": 1e-2} if optimizer == "adam" else {})}}, seed=seed)  # fmt: skip
    flags = ["--plan", path, *recipe]
    assert train(family, "none", [], *flags, seed=seed, wanted=wanted) == []
    assert is_wanted(plans(family, "none")[0])
    assert mirrors(family, "none")
    count = count_instructions(family, "none")
    draws = random.Random(seed)
    instructions = range(count) if SLOW else sorted({*draws.sample(range(count), 3), count - 1})
    for instruction in instructions:
        device = draws.choice(["a:0", "b:0", "c:0"])
        name = f"kill{instruction}"
        events = train(family, name, [fault(device, 7, instruction)], *flags, seed=seed, wanted=wanted)
        assert len(events) <= 1  # a device may have less to do
        for lost in events:
            assert lost["lost"] == [device] and lost["step"] in (7, 8) and lost["pause_s"] < 5


@pytest.mark.parametrize("seed", range(20) if SLOW else [2, 11])
def test_kills_under_drawn_plans_cost_a_step(tmp_path, cluster, environment, seed):
    """One and then another, of which the first may be in the move."""
    draws = random.Random(seed)
    family = Family(draws.choice(["mlp", "gpt_tied", "resnet"]), tmp_path, cluster, environment)
    devices = draws.sample(["a:0", "b:0", "c:0"], 2)
    faults = [fault(device, step, draws.randrange(40)) for device, step in zip(devices, (4, 12), strict=True)]
    events = train(family, "drawn", faults, "--planner", "random", seed=seed)
    assert len(events) <= 2


def test_a_checkpoint_has_no_mirrors_and_a_run_goes_on_from_it(motley, family, cluster):
    path, seed = find_plan(motley, family, cluster, has_stages)
    family.run("half", seed, *SURVIVE, "--plan", path, steps=10)
    folder = family.folder / "half/checkpoints"
    assert all(b"mirror/" not in each.read_bytes() for each in folder.rglob("*.safetensors"))
    faults = conditions(family.folder, faults=[fault("b:0", 14, 4)])
    found = family.run("half", seed, *SURVIVE, "--plan", path, "--conditions", faults)
    loss, worst, where = differences(found, family.reference(seed))
    assert max(loss, worst) < LIMIT, (loss, worst, where)
    assert [each["lost_steps"] for each in membership(family, "half")][-1] <= 1


def test_mirrors_are_said_beforehand(motley, family, cluster, tmp_path):
    path, _ = find_plan(motley, family, cluster, has_stages)
    words = ["run", "-m", family.path, "-C", cluster, "--data", family.data, "--global-batch", family.batch,
             "--steps", 4, "--profile", "model", "--plan", path, "--lr", family.lr]  # fmt: skip
    done = motley(*words, "--run-dir", tmp_path / "with", *SURVIVE)
    assert re.search(r"mirrors: .* on \d devices, .* a step; any 1 of 3 may be lost", done.stderr), done.stderr
    done = motley(*words, "--run-dir", tmp_path / "without", *SURVIVE[:3])
    assert "mirrors: " not in done.stderr and "from the last checkpoint" in done.stderr


def test_a_run_begins_by_the_plan_that_is_found_with_mirrors(motley, family, cluster, tmp_path):
    asked = ["-m", family.path, "-C", cluster, "--global-batch", family.batch, "--profile", "model", "--lr", family.lr]
    path = tmp_path / "plan.json"
    done = motley("plan", *asked, "--survive", 1, "-o", path, "--json")
    assert done.code == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["mirrors"]["survives"] >= 1
    kept = [memory["mirrors_bytes"] for memory in found["memory"].values()]
    assert sum(kept) == found["mirrors"]["kept_bytes"]
    family.run("run", 1, *SURVIVE, steps=2)
    assert family.plan("run") == json.loads(path.read_text())
    simulated = motley("simulate", *asked, "--plan", path, "--survive", 1, "--steps", 1, "--json")  # as `plan` does
    assert json.loads(simulated.stdout)["step_s"] == pytest.approx(found["predicted_step_s"])
    explained = motley("explain", path, "-m", family.path, "-C", cluster, "--survive", 1, "--what-if", "-c:0")
    assert explained.code == 0, explained.stderr
    assert "may be lost" in explained.stdout


@pytest.mark.parametrize("words", [["--survive", -1], ["--survive", 1, "--market", "m.toml"]])
def test_survive_is_of_plans_of_a_model(motley, mlp, cluster, words):
    done = motley("plan", *words, "-m", mlp, "-C", cluster, "--global-batch", 6)
    assert done.code == 2 and "--survive" in done.stderr, done.stderr
