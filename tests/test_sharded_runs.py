"""`motley run --planner random` on three unequal devices: operators split in any way, by uneven
shares, and the same numbers as one device; stopped, killed, and resumed under another plan."""

import json
import os
import signal
import subprocess
import sys

import lowering_models
import pytest
import torch
from conftest import BUILD, DIGITS, SLOW, sampled, slow
from parity import BATCH, LIMIT, NAMES, Family, Trained, differences
from safetensors.torch import load_file
from test_run import start, wait_for_steps, worker_pid

SEEDS = {1: "auto", 2: "gloo"}  # of plans that split operators, and how their ranks exchange


@pytest.fixture(scope="module", autouse=True)
def _priced(profiled, mlp, cluster):
    """Times of one model, from which those of the others are modelled."""
    profiled(mlp, cluster, "--global-batch", 60)


@pytest.fixture(scope="module")
def family(workspace, cluster, environment):
    made = {}

    def make(name):
        if name not in made:
            made[name] = Family(name, workspace / "families", cluster, environment)
        return made[name]

    return make


# Every third model, under one of the plans; make test-slow takes all.
SEEDS_OF = {name: list(SEEDS) if SLOW else [list(SEEDS)[i % len(SEEDS)]] for i, name in enumerate(sampled(NAMES))}


@pytest.mark.parametrize("name", SEEDS_OF)
def test_random_plans_equal_one_device(family, name):
    family = family(name)
    for seed in SEEDS_OF[name]:
        transport = SEEDS[seed]
        found = family.run(f"run-{seed}", seed, "--planner", "random", "--transport", transport)
        regions = family.plan(f"run-{seed}")["replicas"][0]["regions"]
        assert any(split != "whole" for split in regions[0]["operators"])
        assert {"padded", "grouped"} & {way["method"] for way in regions[0].get("exchanges", [])}
        loss, worst, where = differences(found, family.reference(seed))
        assert loss < LIMIT and worst < LIMIT, (name, seed, loss, worst, where)


@pytest.mark.parametrize("name", ["gpt_dropout", "moe"])
def test_micro_batches_that_take_turns_equal_one_device(family, motley, cluster, tmp_path, name):
    """The first drawn plan of which some do."""
    family, path = family(name), tmp_path / "plan.json"
    flags = ["--profile", "model", "--planner", "random", "--lr", family.lr, "-o", path]
    for seed in range(20):
        outcome = motley("plan", "-m", family.path, "-C", cluster, "--global-batch", BATCH, "--seed", seed, *flags)
        assert outcome.code == 0, outcome.stderr
        if json.loads(path.read_text())["replicas"][0].get("turns", 1) > 1:
            break
    else:
        pytest.fail("none was drawn")
    assert "of which take turns" in outcome.stdout
    found = family.run("turns", 3, "--plan", path)
    loss, worst, where = differences(found, family.reference(3))
    assert loss < LIMIT and worst < LIMIT, (name, seed, loss, worst, where)


@pytest.fixture(scope="module")
def drawing(workspace, cluster, environment):
    torch.manual_seed(0)
    made = Trained("all_draws", lowering_models.all_draws(), workspace / "families", (cluster, environment))
    made.is_random = True
    return made


DRAWN_PLANS = ["--planner split", "--planner random", "--planner random --transport gloo", "--batch-split 2,1,1"]


@pytest.mark.parametrize("flags", sampled(DRAWN_PLANS))
def test_models_that_draw_equal_pytorch(drawing, flags):
    """Every kind of draw at once, with the numbers of their definition (philox.py)."""
    found = drawing.run(f"run-{DRAWN_PLANS.index(flags)}", 7, *flags.split())
    loss, worst, where = differences(found, drawing.reference(7))
    assert loss < LIMIT and worst < LIMIT, (flags, loss, worst, where)


@slow
def test_verify_takes_models_that_draw(motley, drawing, cluster, tmp_path):
    outcome = motley("verify", "-m", drawing.path, "-C", cluster, "--data", drawing.data, "--global-batch", 6, "--steps", 4,
                     "--planner", "random", "--seed", 3, "--run-dir", tmp_path / "verify", "--json")
    assert outcome.code == 0 and outcome.json["pass"], outcome.stdout + outcome.stderr


def test_a_plan_says_what_is_drawn_across_samples(motley, drawing, cluster):
    outcome = motley("plan", "-m", drawing.path, "-C", cluster, "--global-batch", 6, "--profile", "model")
    assert "whole: a permutation of all samples, which each device draws alike" in outcome.stdout, outcome.stdout


def mlp_run(motley, mlp, cluster, run_dir, *flags, steps=12, code=0):
    outcome = motley("run", "-m", mlp, "-C", cluster, "--data", DIGITS, "--global-batch", 60, "--steps", steps,
                     "--momentum", "0.9", "--run-dir", run_dir, "--json", "-q", *flags)
    assert outcome.code == code, outcome.stderr
    return outcome


def write_plan(motley, mlp, cluster, path, seed):
    """A plan for the MLP drawn with this seed; the seed of a run is another matter."""
    outcome = motley("plan", "-m", mlp, "-C", cluster, "--global-batch", 60, "--momentum", "0.9",
                     "--profile", "model", "--planner", "random", "--seed", seed, "-o", path, "--json")
    assert outcome.code == 0, outcome.stderr
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def plans(motley, mlp, cluster, workspace):
    """Two plans that keep parameters in parts, and a split of the batch."""
    paths = {}
    for name, seed in [("first", 1), ("second", 2), ("split", 0)]:
        paths[name] = workspace / f"{name}.json"
        plan = write_plan(motley, mlp, cluster, paths[name], seed)
        regions = [replica["regions"][0] for replica in plan["replicas"]]
        assert all(bool(region.get("parameters")) == (name != "split") for region in regions)
    return paths


def assert_same_model(found, wanted):
    found, wanted = load_file(found), load_file(wanted)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert (found[name] - value).norm() <= LIMIT * value.norm(), name


def test_plan_verify_and_simulate_of_a_plan_file(motley, mlp, cluster, plans, tmp_path):
    outcome = motley("verify", "-m", mlp, "-C", cluster, "--data", DIGITS, "--global-batch", 60, "--steps", 5,
                     "--planner", "random", "--seed", 1, "--run-dir", tmp_path / "verify", "--json")
    assert outcome.code == 0 and outcome.json["pass"], outcome.stderr
    plan = json.loads(plans["first"].read_text())
    plan["replicas"][0]["regions"][0]["operators"][0] = "factor 77"
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(plan))
    outcome = motley("run", "-m", mlp, "-C", cluster, "--data", DIGITS, "--plan", bad, "--steps", 2,
                     "--run-dir", tmp_path / "bad")
    assert outcome.code == 4 and "cannot be split as 'factor 77'" in outcome.stderr


@pytest.mark.parametrize("transport", ["auto", "gloo"])
def test_a_run_goes_on_under_other_plans(motley, mlp, cluster, plans, tmp_path, transport):
    flags = ["--transport", transport]
    whole = mlp_run(motley, mlp, cluster, tmp_path / "whole", "--plan", plans["split"], *flags).json
    run_dir = tmp_path / "run"
    for name, steps in [("first", 3), ("second", 6), ("split", 9), ("first", 12)]:
        answer = mlp_run(motley, mlp, cluster, run_dir, "--plan", plans[name], *flags, steps=steps).json
        assert answer["first_step"] == steps - 3
        files = sorted(os.listdir(answer["checkpoint"]))
        assert ("model.safetensors" in files) == (name == "split"), files
        assert load_file(run_dir / "model.safetensors").keys()
    assert answer["losses"] == pytest.approx(whole["losses"], rel=LIMIT)
    assert_same_model(run_dir / "model.safetensors", tmp_path / "whole/model.safetensors")


def test_consolidated_checkpoints(motley, mlp, cluster, plans, tmp_path):
    run_dir, other = tmp_path / "run", tmp_path / "other"
    mlp_run(motley, mlp, cluster, run_dir, "--plan", plans["first"], steps=4)
    target = other / "checkpoint/step-00000004"
    outcome = motley("consolidate", run_dir, "-o", f"{target}/", "--json")
    assert outcome.code == 0 and outcome.json["step"] == 4, outcome.stderr
    assert outcome.json["checkpoint"] == str(target) and os.listdir(target.parent) == [target.name]
    assert sorted(os.listdir(target)) == ["model.safetensors", "optimizer.safetensors", "state.json"]
    published, model = load_file(run_dir / "model.safetensors"), load_file(target / "model.safetensors")
    assert published.keys() == model.keys()
    assert all(torch.equal(model[name], value) for name, value in published.items())
    states = load_file(target / "optimizer.safetensors")
    assert all(states[f"{name}/momentum"].shape == value.shape for name, value in model.items())
    # Both go on, under any plan, to the same end.
    mlp_run(motley, mlp, cluster, other, "--plan", plans["split"], steps=8)
    assert motley("consolidate", run_dir).code == 0
    answer = mlp_run(motley, mlp, cluster, run_dir, "--plan", plans["second"], steps=8).json
    assert answer["first_step"] == 4
    assert_same_model(run_dir / "model.safetensors", other / "model.safetensors")
    outcome = motley("consolidate", tmp_path / "nothing")
    assert outcome.code == 2 and "neither a checkpoint nor a run directory" in outcome.stderr


def test_a_killed_run_ends_as_an_undisturbed_one_under_another_plan(
    motley, environment, mlp, cluster, plans, tmp_path
):
    run_dir = tmp_path / "run"
    words = ["run", "-m", mlp, "-C", cluster, "--data", DIGITS, "--global-batch", 60, "--steps", 100000,
             "--momentum", "0.9", "--run-dir", run_dir, "--plan", plans["first"], "--checkpoint-every", 4]
    process = start(environment, *words)
    wait_for_steps(run_dir, 9)
    os.kill(worker_pid(run_dir, 1), signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 1
    done = len((run_dir / "log.jsonl").read_text().splitlines())
    answer = mlp_run(motley, mlp, cluster, run_dir, "--plan", plans["second"], steps=done + 4).json
    assert answer["first_step"] % 4 == 0 and answer["first_step"] > 0
    whole = mlp_run(motley, mlp, cluster, tmp_path / "whole", "--plan", plans["split"], steps=done + 4).json
    assert answer["losses"] == pytest.approx(whole["losses"], rel=1e-4)  # some hundred steps


def test_a_damaged_part_is_named(motley, mlp, cluster, plans, tmp_path):
    run_dir = tmp_path / "run"
    mlp_run(motley, mlp, cluster, run_dir, "--plan", plans["first"], steps=2)
    path = run_dir / "checkpoint/latest/model-00002-of-00002.safetensors"
    if not path.exists():
        path = run_dir / "checkpoint/latest/model-00002-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-4])
    outcome = mlp_run(motley, mlp, cluster, run_dir, "--plan", plans["first"], steps=4, code=2)
    assert path.name in outcome.stderr and "start from the beginning" in outcome.stderr


def test_full_disk_keeps_the_last_checkpoint(motley, environment, mlp, cluster, plans, tmp_path):
    run_dir = tmp_path / "run"
    mlp_run(motley, mlp, cluster, run_dir, "--plan", plans["second"], steps=2)
    # No file of more than 100 kB: less than a rank's part.
    words = " ".join(f"'{word}'" for word in [
        BUILD / "motley", "run", "-m", mlp, "-C", cluster, "--data", DIGITS, "--steps", 4,
        "--plan", plans["second"], "--run-dir", run_dir])
    done = subprocess.run(["bash", "-c", f"ulimit -f 100; exec {words}"], env=environment, capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    assert "checkpoint of step 4 not written" in done.stderr and "step-00000002 is kept" in done.stderr
    assert sorted(os.listdir(run_dir / "checkpoint")) == ["latest", "step-00000002"]
    assert mlp_run(motley, mlp, cluster, run_dir, "--plan", plans["second"], steps=4).json["first_step"] == 2


def test_under_torchrun_as_by_itself(motley, environment, mlp, cluster, plans, tmp_path):
    plan = json.loads(plans["second"].read_text())
    ranks = len(plan["replicas"][0]["regions"][0]["devices"])
    mlp_run(motley, mlp, cluster, tmp_path / "local", "--plan", plans["second"], steps=4)
    for steps in (2, 4):
        words = ["run", "-m", mlp, "-C", cluster, "--data", DIGITS, "--steps", steps, "--plan", plans["second"],
                 "--run-dir", tmp_path / "torchrun"]
        done = subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", str(ranks),
             "--master-port", "29621", str(BUILD / "motley"), *map(str, words)],
            capture_output=True, text=True, timeout=120, env=environment, check=False,
        )
        assert done.returncode == 0, done.stderr
    local, launched = (tmp_path / name / "model.safetensors" for name in ("local", "torchrun"))
    assert local.read_bytes() == launched.read_bytes()
