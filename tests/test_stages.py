"""Replicas cut into stages, or into any regions, train as one device does: drawn plans, plans that are searched for
models that fit no device, and what such a run leaves behind."""

import contextlib
import json
import re
import sqlite3
import subprocess
import sys

import pytest
import torch
from conftest import SLOW, sampled, slow
from parity import LIMIT, NAMES, Family, Result, Trained, differences
from safetensors.torch import load_file
from torch import nn

from motley.model_file import read_model_file


def emulated(*nodes):
    """A cluster's text: nodes a, b, ... of CPUs, each (speed, memory)."""
    lines = ['schema = "motley.cluster/1"', 'name = "small"']
    for name, devices in zip("abc", nodes, strict=False):
        lines += ["[[node]]", f'name = "{name}"']
        for speed, memory in devices:
            lines += ["  [[node.device]]", '  kind = "cpu"', f"  speed = {speed}", f'  memory = "{memory}"']
    return "\n".join(lines) + "\n"


def three(*memories):
    return emulated(*[[each] for each in zip((0.6, 0.5, 0.4), memories, strict=True)])


def has_stages(plan):
    return any(len(replica["regions"]) > 1 for replica in plan["replicas"])


def drawn_stages(motley, family, cluster, count, is_wanted=has_stages):
    """Seeds of which the planner `random` draws such stages."""
    seeds = []
    for seed in range(200):
        path = family.folder / "drawn.json"
        words = ["plan", "-m", family.path, "-C", cluster, "--global-batch", family.batch, "--planner", "random",
                 "--seed", seed, "--profile", "model", "-o", path]  # fmt: skip
        assert motley(*words).code == 0
        if is_wanted(json.loads(path.read_text())):
            seeds.append(seed)
        if len(seeds) == count:
            return seeds
    raise AssertionError(f"only {seeds} of 200 draws are stages")


@pytest.fixture(scope="session")
def priced(profiled, mlp, cluster):
    """Times of one model, from which those of the others are modelled."""
    profiled(mlp, cluster, "--global-batch", 60)


@pytest.fixture
def even(priced, environment, tmp_path):
    """The environment with a store whose times follow from work and size alone: plans do not depend on the machine."""
    store = tmp_path / "even.db"
    with contextlib.closing(sqlite3.connect(environment["MOTLEY_PROFILES"], timeout=60)) as measured, \
            contextlib.closing(sqlite3.connect(store)) as database, database:  # fmt: skip
        measured.backup(database)
        database.execute("UPDATE op SET median_s = 5e-6 + flops / 1e10 + bytes / 5e9, spread = 0")
        database.execute("UPDATE collective SET median_s = 1e-4 * ranks + bytes / 1e9, spread = 0")
        database.execute("UPDATE interference SET factor = 0")
        database.execute("DELETE FROM prediction")
    return dict(environment, MOTLEY_PROFILES=str(store))


@pytest.mark.parametrize("name", NAMES if SLOW else ["gpt_tied"])
def test_drawn_stages_equal_one_device(motley, priced, cluster, environment, tmp_path, name):
    family = Family(name, tmp_path, cluster, environment)
    for i, seed in enumerate(drawn_stages(motley, family, cluster, 6 if SLOW else 2)):
        found = family.run("run", seed, "--planner", "random", "--resume", "never",
                           "--transport", "gloo" if i % 2 else "auto")  # fmt: skip
        loss, worst, where = differences(found, family.reference(seed))
        assert loss < LIMIT and worst < LIMIT, (name, seed, loss, worst, where)


def takes_turns(plan):
    """Several devices share a region, in which two micro-batches take turns."""
    return any(region.get("turns", 1) > 1 and replica.get("micro_batches", 1) > 1
               for replica in plan["replicas"] for region in replica["regions"])  # fmt: skip


def test_stages_of_which_two_micro_batches_take_turns_equal_one_device(motley, priced, cluster, environment, tmp_path):
    family = Family("gpt_tied", tmp_path, cluster, environment)
    seed = drawn_stages(motley, family, cluster, 1, takes_turns)[0]
    table = motley("plan", "-m", family.path, "-C", cluster, "--global-batch", family.batch, "--planner", "random",
                   "--seed", seed, "--profile", "model").stdout  # fmt: skip
    assert ", turns" in table, table
    found = family.run("run", seed, "--planner", "random", "--resume", "never", "--transport", "gloo")
    loss, worst, where = differences(found, family.reference(seed))
    assert loss < LIMIT and worst < LIMIT, (seed, loss, worst, where)


def shares_states(plan):
    return "owners" in plan and len(plan["replicas"]) > 1 and has_stages(plan)


@pytest.mark.parametrize("is_wanted", sampled([has_stages, shares_states], 1))
def test_stages_go_on_under_another_plan(motley, priced, cluster, environment, tmp_path, is_wanted):
    """Adam's states are kept by the devices that have the parameters, or shared over replicas, and found by others."""
    family = Family("gpt_tied", tmp_path, cluster, environment)
    seed = drawn_stages(motley, family, cluster, 1, is_wanted)[0]
    flags = ["--optimizer", "adamw", "--eps", 1e-3, "--clip-norm", 0.5]
    whole = family.run("whole", seed, "--planner", "split", *flags)
    family.run("half", seed, "--planner", "random", *flags, steps=7)
    rest = family.run("half", seed, "--planner", "split", *flags)
    loss, worst, where = differences(rest, whole)
    assert loss < 1e-4 and worst < 1e-3, (loss, worst, where)  # Adam divides by what rounding moves
    back = family.run("back", seed, "--planner", "split", *flags, steps=7)
    assert len(back.losses) == 7
    rest = family.run("back", seed, "--planner", "random", *flags)
    loss, worst, where = differences(rest, whole)
    assert loss < 1e-4 and worst < 1e-3, (loss, worst, where)


def test_a_model_that_fits_no_device_trains(motley, priced, environment, tmp_path):
    """With Adam's states it fits no device, in no split of the batch."""
    cluster = tmp_path / "small.toml"
    cluster.write_text(three("560KiB", "520KiB", "480KiB"))
    family = Family("gpt_tied", tmp_path, cluster, environment)
    plan = ["plan", "-m", family.path, "-C", cluster, "--global-batch", family.batch, "--profile", "model",
            "--optimizer", "adam"]  # fmt: skip
    assert motley(*plan, "--planner", "split").code == 3
    path = tmp_path / "stages.json"
    outcome = motley(*plan, "--planner", "stages", "-o", path, "--json")
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert has_stages(json.loads(path.read_text()))
    assert 0 < outcome.json["lower_bound_s"] <= outcome.json["predicted_step_s"]
    found_stages = outcome.json["stages"]
    run = tmp_path / "run"
    words = ["run", "-m", family.path, "-C", cluster, "--plan", path, "--data", family.data, "--steps", 20, "--run-dir", run,
             "--python", sys.executable, "--profile", "model"]  # fmt: skip
    outcome = motley(*words, "--json")
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    for device in outcome.json["devices"]:
        # What is predicted holds, and is no guess.
        assert device["peak_bytes"] <= 1.03 * device["predicted_peak_bytes"], device
    # What other planners' spaces hold is no quicker, whether they have a plan or not.
    best = motley(*plan, "--planner", "auto", "--json").json["predicted_step_s"]
    steps = {}
    for planner in ("equal-stages", "uniform-stages", "amp", "sailor", "harp", "zorse"):
        found = motley(*plan, "--planner", planner, "--json")
        assert found.code in (0, 3) and found.json["planner"] == planner, found.stderr
        if found.code == 0:
            steps[planner] = found.json["predicted_step_s"]
    assert steps and min(steps.values()) >= best, (best, steps)
    # The same stages as somebody else's, by what the answer says of them.
    given = tmp_path / "given.json"
    given.write_text(json.dumps(found_stages))
    again = motley(*plan, "--stages", given, "--json")
    assert again.code == 0 and again.json["planner"] == "given", again.stderr
    assert [stage["devices"] for stage in again.json["stages"]] == [stage["devices"] for stage in found_stages]
    assert again.json["predicted_step_s"] >= (1 - 1e-9) * best
    given.write_text(json.dumps([{**stage, "recompute": True} for stage in found_stages]))
    dearer = motley(*plan, "--stages", given, "--json")
    # The found stages may have to do all again that there is to do.
    assert dearer.json["predicted_step_s"] >= again.json["predicted_step_s"]
    assert max(dearer.json["peak_bytes"].values()) <= max(again.json["peak_bytes"].values())
    for change, message in [
        ({"devices": ["q:7"]}, "replica 0, stage 0: "),
        ({"layers": "nothing"}, "replica 0, stage 0: the model has no layer 'nothing'"),
        ({"layers": [0, 99]}, "replica 0, stage 0: layers 0 to 99, wanted numbers below"),
        ({"samples": 1}, "samples"),
    ]:
        given.write_text(json.dumps([{**found_stages[0], **change}, *found_stages[1:]]))
        outcome_of = motley(*plan, "--stages", given)
        assert outcome_of.code == 2 and message in outcome_of.stderr, (message, outcome_of.stderr)
    assert "leave out --planner" in motley(*plan, "--stages", given, "--planner", "spmd").stderr
    # The plan in another tool's words.
    other = motley("export-plan", path, "-m", family.path, "-C", cluster, "--to", "deepspeed")
    assert other.code == 0 and other.stdout.count("slots=1") == len(outcome.json["devices"])
    wrong = motley("export-plan", path, "-m", family.path, "-C", cluster, "--to", "megatrom")
    assert wrong.code == 2 and "did you mean 'megatron'" in wrong.stderr


def regions_with(plan, operator):
    """Of each replica: which region has the operator."""
    found = []
    for replica in plan["replicas"]:
        for i, region in enumerate(replica["regions"]):
            ranges = [[int(each) for each in text.split("-")] for text in region.get("covers", [])]
            if any(first <= operator <= last for first, last in ranges):
                found.append(i)
    return found


def test_a_tied_weight_is_one_stages(motley, priced, environment, tmp_path):
    """The head reads a view of the embedding's weight, which it is given: it keeps no copy, and the result is
    that of one device."""
    cluster = tmp_path / "small.toml"
    cluster.write_text(three("560KiB", "520KiB", "480KiB"))
    family = Family("gpt_tied", tmp_path, cluster, environment)
    flags = ["--optimizer", "adamw", "--eps", 1e-3, "--clip-norm", 0.5]
    found = family.run("stages", 3, "--planner", "stages", *flags)
    plan = family.plan("stages")
    assert has_stages(plan)
    operators = [line for line in read_model_file(family.path)[0].splitlines() if line.startswith("op ")]
    parameter = re.search(r'param (%\d+): \S+ \[?.*"wte.weight"', read_model_file(family.path)[0])[1]
    readers = [i for i, line in enumerate(operators) if f"({parameter}," in line or f"({parameter})" in line]
    assert len(readers) > 1
    assert len({tuple(regions_with(plan, reader)) for reader in readers}) == 1, (plan, readers)
    cluster.write_text(three("1GiB", "1GiB", "1GiB"))
    whole = family.run("whole", 3, "--planner", "split", *flags)
    loss, worst, where = differences(found, whole)
    assert loss < 1e-4 and worst < 1e-3, (loss, worst, where)  # Adam divides by what rounding moves


class Deep(nn.Module):
    """Of whose memory weights are most."""

    def __init__(self, layers=12, width=160):
        super().__init__()
        self.layers = nn.Sequential(*[each for _ in range(layers) for each in (nn.Linear(width, width), nn.Tanh())])

    def forward(self, x):
        return self.layers(x).square().mean()


@slow
def test_copies_gathered_again_take_less_memory(motley, priced, cluster, environment, tmp_path):
    """A plan that was drawn with parameters in parts, gathered once or for each pass: the second holds less, as is
    predicted and measured, and both have one device's result."""
    torch.manual_seed(0)
    deep = Trained("deep", (Deep(), (torch.randn(40, 160),)), tmp_path, (cluster, environment))
    path = deep.folder / "drawn.json"
    words = ["-m", deep.path, "-C", cluster, "--profile", "model"]

    def gather_again(plan, names):
        region = plan["replicas"][0]["regions"][0]
        region.pop("exchanges", None)
        region.pop("gather_again", None)
        path.write_text(json.dumps({**plan, "replicas": [{**plan["replicas"][0], "regions": [
            {**region, **({"gather_again": names} if names else {})}]}]}))  # fmt: skip

    def predicted():
        lines = motley("simulate", *words, "--plan", path).stdout.splitlines()
        return max(float(line.split()[-2]) for line in lines[:8] if line.endswith("MiB"))

    for seed in range(200):
        drawn = motley("plan", *words, "--global-batch", deep.batch, "--planner", "random", "--seed", seed,
                       "--lr", deep.lr, "--bucket", "64KiB", "-o", path)  # fmt: skip
        assert drawn.code == 0, drawn.stderr
        plan = json.loads(path.read_text())
        names = list(plan["replicas"][0]["regions"][0].get("parameters", {}))
        if has_stages(plan) or len(plan["replicas"]) > 1 or len(names) < 10:
            continue
        gather_again(plan, [])
        once = predicted()
        gather_again(plan, names)
        if predicted() < 0.9 * once:
            break
    else:
        raise AssertionError("no drawn plan gathers much")
    peaks = []
    for again in ([], names):
        gather_again(plan, again)
        folder = deep.folder / f"run{len(again)}"
        outcome = motley("run", *words, "--plan", path, "--data", deep.data, "--steps", deep.steps, "--run-dir", folder,
                         "--python", sys.executable, "--json")  # fmt: skip
        assert outcome.code == 0, outcome.stdout + outcome.stderr
        for device in outcome.json["devices"]:
            # A copy that is gathered one reader ahead may come before or after the fullest moment.
            one_copy = 4 * 160 * 160 if again else 0
            assert device["peak_bytes"] == pytest.approx(
                device["predicted_peak_bytes"], abs=0.01 * device["predicted_peak_bytes"] + one_copy), device  # fmt: skip
        peaks.append(max(device["peak_bytes"] for device in outcome.json["devices"]))
        found = Result(outcome.json["losses"], load_file(folder / "model.safetensors"))
        loss, worst, where = differences(found, deep.reference(0))
        assert loss < LIMIT and worst < LIMIT, (again, loss, worst, where)
    assert peaks[1] < 0.9 * peaks[0], peaks


class Trunk(nn.Module):
    """Two branches side by side, none of whose modules has a number: one layer."""

    def __init__(self, width):
        super().__init__()
        for side in ("left", "right"):
            for place in ("first", "second", "third", "fourth"):
                self.add_module(f"{side}_{place}", nn.Linear(width, width))
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        left = self.left_fourth(self.drop(self.left_third(self.left_second(self.left_first(x).tanh()).tanh()).tanh()))
        return left * self.right_fourth(self.right_third(self.right_second(self.right_first(x).tanh()).tanh()).tanh())


class Nested(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.into, self.trunk, self.out = nn.Linear(width, width), Trunk(width), nn.Linear(width, 8)

    def forward(self, x):
        return self.out(self.trunk(self.into(x))).square().mean()


def test_a_layer_that_fits_no_device_is_cut(motley, even, tmp_path):
    """Most of the model is one layer, with Adam's states too large for each device: stages are cut in it, as the plan
    says, which can be said again; the result is that of one device."""
    torch.manual_seed(0)
    cluster = tmp_path / "small.toml"
    cluster.write_text(three("2200KiB", "2100KiB", "2000KiB"))
    nested = Trained("nested", (Nested(), (torch.randn(40, 160),)), tmp_path, (cluster, even))
    words = ["plan", "-m", nested.path, "-C", cluster, "--global-batch", nested.batch, "--profile", "model",
             "--optimizer", "adamw"]  # fmt: skip

    def plan(*flags):
        return motley(*words, *flags, env=even)

    assert plan("--planner", "split").code == 3
    # Spaces of whole layers have none.
    assert plan("--planner", "harp").code == 3
    outcome = plan("--planner", "stages", "--json")
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert 0 < outcome.json["lower_bound_s"] <= outcome.json["predicted_step_s"]
    stages = outcome.json["stages"]
    ends = [stage["layers"] for stage in stages]
    cuts = [re.search(r"trunk \(through (aten::.+)\)$", end) for end in ends]
    inside = next(s for s, cut in enumerate(cuts) if cut)
    assert ends[inside + 1].startswith(f"trunk (after {cuts[inside][1]})"), ends
    table = plan("--planner", "stages").stdout
    assert ends[inside] in table, table
    given = tmp_path / "given.json"
    given.write_text(json.dumps(stages))
    again = plan("--stages", given, "--json")
    assert again.code == 0, again.stderr
    assert [stage["layers"] for stage in again.json["stages"]] == ends
    wrong = [{**stage, "layers": stage["layers"].replace("through", "up to")} for stage in stages]
    given.write_text(json.dumps(wrong))
    refused = plan("--stages", given).stderr
    assert f"replica 0, stage {inside}: the model has no layer 'trunk (up" in refused, refused
    flags = ["--optimizer", "adamw", "--eps", 1e-3]
    found = nested.run("stages", 3, "--planner", "stages", *flags)
    assert has_stages(nested.plan("stages"))
    other = motley("export-plan", nested.folder / "stages/plan.json", "-m", nested.path, "-C", cluster, "--to", "torchtitan")
    assert other.code == 2 and "layer" in other.stderr, other.stderr
    cluster.write_text(three("1GiB", "1GiB", "1GiB"))
    whole = nested.run("whole", 3, "--planner", "split", *flags)
    loss, worst, where = differences(found, whole)
    assert loss < 1e-4 and worst < 1e-3, (loss, worst, where)  # Adam divides by what rounding moves


class OneLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(200, 600)

    def forward(self, x):
        return self.fc(x).square().mean()


def test_replicas_that_lack_memory_share_states(motley, priced, environment, tmp_path):
    """One layer, of which no device has room for Adam's states beside all else: replicas keep a part each."""
    torch.manual_seed(0)
    cluster = tmp_path / "small.toml"
    cluster.write_text(three("2800KiB", "2800KiB", "2800KiB"))
    one = Trained("one", (OneLayer(), (torch.randn(1200, 200),)), tmp_path, (cluster, environment))
    one.batch = 600
    plan = ["plan", "-m", one.path, "-C", cluster, "--global-batch", 600, "--profile", "model", "--optimizer", "adam"]
    assert motley(*plan, "--planner", "split").code == 3
    found = motley(*plan, "--planner", "stages")
    assert found.code == 0 and "owners of *: a:0 " in found.stdout, found.stdout
    flags = ["--optimizer", "adam", "--eps", 1e-3]
    shared = one.run("shared", 3, "--planner", "stages", *flags, steps=6)
    assert len(one.plan("shared")["owners"][0]["shares"]) > 1
    cluster.write_text(three("1GiB", "1GiB", "1GiB"))
    whole = one.run("whole", 3, "--planner", "split", *flags, steps=6)
    loss, worst, where = differences(shared, whole)
    assert loss < LIMIT and worst < LIMIT, (loss, worst, where)


def test_unlike_devices_of_a_host_share_a_stage(motley, priced, environment, tmp_path):
    """In parts by their speeds; the model trains as on one device, in stages that somebody gives."""
    cluster = tmp_path / "mixed.toml"
    cluster.write_text(emulated([(0.6, "1GiB"), (0.3, "1GiB")], [(0.5, "1GiB")]))
    family = Family("gpt_tied", tmp_path, cluster, environment)
    reference = family.reference(0)
    given = tmp_path / "given.json"
    stages = [("a:0 a:1", [0, 2]), ("b:0", [3, 5])]
    given.write_text(json.dumps([{"devices": names.split(), "layers": layers, "micro_batches": 2} for names, layers in stages]))
    found = family.run("given", 0, "--stages", given)
    region = family.plan("given")["replicas"][0]["regions"][0]
    assert region["devices"] == ["a:0", "a:1"] and region["shares"][0] > 1.2 * region["shares"][1], region
    loss, worst, where = differences(found, reference)
    assert loss < LIMIT and worst < LIMIT, (loss, worst, where)
    given.write_text(json.dumps([{"devices": ["a:0", "b:0"], "layers": [0, 2]}, {"devices": ["a:1"], "layers": [3, 5]}]))
    refused = motley("plan", "-m", family.path, "-C", cluster, "--global-batch", family.batch, "--stages", given)
    assert refused.code == 2 and "devices a:0, b:0: wanted ones of one host" in refused.stderr, refused.stderr


def test_what_fits_in_no_micro_batches_is_done_again(motley, priced, environment, tmp_path):
    """One device with less memory than one sample takes: it does some of the forward pass again, draws the same
    numbers there, and gives PyTorch's result."""
    cluster = tmp_path / "one.toml"
    cluster.write_text(emulated([(1, "1GiB")]))
    family = Family("gpt_dropout", tmp_path, cluster, environment)
    plan = ["plan", "-m", family.path, "-C", cluster, "--global-batch", family.batch, "--profile", "model", "--json"]
    needed = motley(*plan, "--micro-batches", family.batch).json["peak_bytes"]["a:0"]
    cluster.write_text(emulated([(1, f"{int(0.97 * needed)}B")]))
    assert motley(*plan, "--planner", "split").code == 3
    found = family.run("again", 5)
    region = family.plan("again")["replicas"][0]["regions"][0]
    assert region["devices"] == ["a:0"] and region["recompute"]
    loss, worst, where = differences(found, family.reference(5))
    assert loss < LIMIT and worst < LIMIT, (loss, worst, where)


@slow
def test_interleaved_stages_equal_one_device(motley, priced, environment, tmp_path):
    """Devices that have several stages in turns, as rounds and as a wave with a tied weight in both stages of one."""
    cluster = tmp_path / "small.toml"
    cluster.write_text(three("1GiB", "1GiB", "1GiB"))
    family = Family("gpt_tied", tmp_path, cluster, environment)
    reference = family.reference(0)
    given = tmp_path / "given.json"
    for name, stages in {
        "rounds": [("a:0", [0, 0]), ("b:0", [1, 2]), ("a:0", [3, 3]), ("b:0", [4, 5])],
        "wave": [("a:0", [0, 1]), ("b:0", [2, 2]), ("c:0", [3, 3]), ("b:0", [4, 4]), ("a:0", [5, 5])],
    }.items():
        given.write_text(json.dumps([{"devices": [device], "layers": layers, "micro_batches": 2} for device, layers in stages]))
        found = family.run(name, 0, "--stages", given)
        regions = family.plan(name)["replicas"][0]["regions"]
        assert [region["devices"] for region in regions] == [[device] for device, _ in stages]
        loss, worst, where = differences(found, reference)
        assert loss < LIMIT and worst < LIMIT, (name, loss, worst, where)
    table = motley("plan", "-m", family.path, "-C", cluster, "--global-batch", family.batch, "--stages", given,
                   "--profile", "model").stdout  # fmt: skip
    assert "with 0.0" in table and "with 0.1" in table, table
    given.write_text(json.dumps([{"devices": ["a:0"], "layers": [0, 1]}, {"devices": ["a:0", "b:0"], "layers": [2, 5]}]))
    assert motley("plan", "-m", family.path, "-C", cluster, "--global-batch", family.batch, "--stages", given).code == 2


WHOLE_BATCH = """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Linear(2048, 2048) for _ in range(4))

    def forward(self, x, y):
        h = self.b(self.a(x).relu())
        h = self.c(h - h.amax(0)).relu()
        return nn.functional.mse_loss(self.d(h), y)

def model():
    return Net(), (torch.randn(6, 2048), torch.randn(6, 2048))
"""
K80S = """schema = "motley.cluster/1"
name = "k80"
node = [{ name = "a", host = "a", device = [{ kind = "k80" }] }, { name = "b", host = "b", device = [{ kind = "k80" }] }]
[[link]]
all = true
bandwidth = "25Gbps"
latency = "10us"
"""


@pytest.mark.parametrize("planner", sampled(["stages", "auto"], 1))
def test_why_there_are_no_stages_is_told_once(motley, environment, tmp_path, planner):
    """Of a model that needs all samples at once, though stages of micro-batches would be quicker than what is chosen."""
    (tmp_path / "whole.py").write_text(WHOLE_BATCH)
    (tmp_path / "k80.toml").write_text(K80S)
    model = tmp_path / "whole.motley"
    subprocess.run([sys.executable, "-m", "motley.export", "--graph-only", f"{tmp_path}/whole.py:model", "-o", model],
                   check=True, capture_output=True, env=environment)  # fmt: skip
    found = motley("plan", "-m", model, "-C", tmp_path / "k80.toml", "--global-batch", 1024, "--planner", planner, "-o",
                   tmp_path / "plan.json", "--json")  # fmt: skip
    assert found.code == 0, found.stderr
    told = [why for why in found.json["why"] if why.startswith("no stages: ")]
    assert len(told) == 1 and "operator aten::amax in module '' needs all samples at once" in told[0], found.json["why"]
