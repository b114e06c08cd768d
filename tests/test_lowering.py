"""Lowered programs of unequal devices compute what eager PyTorch computes on one device.

Each model is exported, lowered for one device and for three, and one step is interpreted with
PyTorch; loss, parameters after a step of SGD (that is, gradients) and buffers are compared.
"""

import copy
import json
import subprocess
import sys
from functools import cache, partial

import numpy as np
import pytest
import torch
from conftest import BUILD, ROOT, SLOW, sampled
from sweep import DRAWN, FAMILIES, MODELS, covering, make, model_file

sys.path[:0] = [str(ROOT / "python")]

from motley.draws import DrawnEagerly  # noqa: E402
from motley.eager import Loop  # noqa: E402
from motley.micro_batches import MicroBatches  # noqa: E402
from motley.model_file import read_model_file  # noqa: E402
from motley.philox import PhiloxDraws  # noqa: E402
from program_interpreter import SEED, STEP, run_program  # noqa: E402
from recipes import disturb  # noqa: E402

LR = 0.1  # of lower_tool
SPLITS = [("3,1,2",), ("1,5", "512")]  # the second with small buckets


class Case:
    def __init__(self, name):
        self.name = name
        self.module, self.inputs = make(name)
        self.path = model_file(name)
        self.tensors = read_model_file(self.path)[1]
        self.tolerance = 2e-2 if name == "bf16" else 1e-5

    def lower(self, split, *options):
        command = [BUILD / "lower_tool", self.path, split, *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, split, *options):
        return run_program(self.lower(split, *options), self.tensors, self.inputs)

    @cache  # noqa: B019
    def eager(self):
        """Loss and state after a step of PyTorch, which draws what the definition says."""
        module = copy.deepcopy(self.module)
        with DrawnEagerly(PhiloxDraws(SEED, STEP)):
            loss = module(*self.inputs)
            loss = loss[0] if isinstance(loss, tuple) else loss
            loss.backward()
        with torch.no_grad():
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter -= LR * parameter.grad
        return loss.item(), module.state_dict()

    @cache  # noqa: B019
    def accumulated(self, times):
        """The same of as many micro-batches: PyTorch's loop."""
        loop = Loop(copy.deepcopy(self.module), {"optimizer": OPTIMIZER})
        part = 1 if self.name == "normed_sums" else 1 / times
        found = MicroBatches.find(loop, self.inputs, times, part)
        loss = loop.step(self.inputs, backward=partial(found.backward, loop, seed=SEED, step=STEP))
        return loss, loop.module.state_dict()

    def check(self, machines, loss, state, tolerance=None):
        """What each machine keeps of each tensor, whole or in part."""
        tolerance = tolerance or self.tolerance
        for machine in machines:
            assert machine.loss == pytest.approx(loss, rel=self.tolerance)
            assert machine.stop == 1.0
            for name, buffer in machine.named_buffers().items():
                wanted = buffer.take(state[name])
                assert_close(machine.named()[name], wanted, tolerance, f"{self.name}: {name}")


@pytest.fixture(scope="module")
def case():
    return cache(Case)


def assert_close(found, wanted, tolerance, where):
    """Relative to the norm of the wanted tensor."""
    difference = (found.double() - wanted.double()).norm()
    assert difference <= tolerance * (wanted.double().norm() + 1e-3), (where, found, wanted)


def compare(case, machines, loss, state):
    for machine in machines:
        assert machine.loss == pytest.approx(loss, rel=case.tolerance)
        assert machine.stop == 1.0
        for name, value in machine.named().items():
            assert_close(value, state[name], case.tolerance, f"{case.name}: {name}")
            assert torch.equal(value, machines[0].named()[name]), f"{name}: replicas differ"


@pytest.mark.parametrize("name", MODELS)
def test_one_device_equals_eager(case, name):
    case = case(name)
    text = case.lower(str(len(case.inputs[0])))
    assert "transfer" not in text and "motley::pack" not in text
    compare(case, run_program(text, case.tensors, case.inputs), *case.eager())


@pytest.mark.parametrize(("name", "split"), [(name, split) for turn, split in enumerate(SPLITS) for name in covering(turn)])
def test_unequal_devices_equal_one(case, name, split):
    case = case(name)
    loss, state = case.eager()
    compare(case, case.run(*split), loss, state)


@pytest.mark.parametrize("name", covering(2))
def test_operators_split_at_random_equal_one(case, name):
    """Any operator along any factor, by uneven shares; one device has none of some. Then with all
    parameters in parts and small buckets."""
    case = case(name)
    loss, state = case.eager()
    case.check(case.run("3,1,2", "sharded", "0"), loss, state)
    case.check(case.run("2,2,1,1", "sharded", "1"), loss, state)
    case.check(case.run("3,0,2,1", "sharded", "2", "kept", "512"), loss, state)


@pytest.mark.parametrize("name", sampled(MODELS, 1))
def test_replicas_cut_into_regions_at_random_equal_one(case, name):
    """Pipelines, stretches and single operators on devices of their own, micro-batches that differ,
    regions of several devices."""
    case = case(name)
    loss, state = case.eager()
    for seed in range(60 if SLOW else 6):
        case.check(case.run(("2,3,1", "1,1,2,2")[seed % 2], f"stages={seed}", *(["512"] if seed % 3 else [])), loss, state)


def test_a_term_counts_on_a_device_without_a_part(case):
    """Of a product's contraction one device has no part; of the sum to which it is added it has a term."""
    case = case("products")
    loss, state = case.eager()
    text = case.lower("2,3,1", "stages=10", "512")
    devices = text.split("\ndevice ")[1:]
    assert all("aten::baddbmm" in device for device in devices) and ", 0]" in text
    case.check(run_program(text, case.tensors, case.inputs), loss, state)


# By model: what needs all samples at once.
TOGETHER = {
    "without_rules": "operator aten::_cdist_forward in module ''",
    "cnn": "operator aten::_native_batch_norm_legit_functional in module 'net.1'",
    "resnet": "operator aten::_native_batch_norm_legit_functional in module 'net.1'",
    "batch_norms": "operator aten::_native_batch_norm_legit_functional in module 'plain'",
    "averaged_norms": "operator aten::_native_batch_norm_legit_functional in module 'shared'",
    "normed_sums": "operator aten::_native_batch_norm_legit_functional in module 'norm'",
    "normed_pairs": "operator aten::_native_batch_norm_legit_functional in module 'norm'",
    "normed_mask": "operator aten::_native_batch_norm_legit_functional in module 'norm'",
    "normalized_inputs": "operator aten::_native_batch_norm_legit_functional in module 'images'",
    "batch_statistics": "output 12 is not a sum over samples",
    "masked_mean": "operator aten::log in module ''",
    "mixup": "operator motley::random in module '' permutes all samples at once",
    "two_views": "operator aten::view in module ''",
    "mixed_samples": "operator aten::sort in module ''",
}


def _is_together(name):
    """Drawn models' batch norms need all samples, too."""
    return name in TOGETHER or (name in DRAWN and "BatchNorm" in str(DRAWN[name]()[0]))


@pytest.mark.parametrize("name", [name for name in sampled(MODELS, 2) if not _is_together(name)])
def test_micro_batches_equal_one(case, name):
    """Two and three micro-batches, whose operators are split by samples, or at random."""
    case = case(name)
    loss, state = case.eager()
    case.check(case.run("4,2", "spread", "micro=2"), loss, state)
    case.check(case.run("3,1,2", "sharded", "0", "micro=2"), loss, state)
    case.check(case.run("3,0,3", "sharded", "2", "kept", "micro=3", "512"), loss, state)


@pytest.mark.parametrize("name", [name for name in sampled(MODELS, 0) if not _is_together(name)])
def test_micro_batches_that_take_turns_equal_one(case, name):
    """All of them, or two of three, split by samples or at random, also done again in the backward pass."""
    case = case(name)
    loss, state = case.eager()
    case.check(case.run("4,2", "spread", "micro=2", "turns=2"), loss, state)
    for seed, shares in enumerate(("3,1,2", "5,1", "2,0,4", "1,1,1,3")):
        kept = ["kept", "512"] if seed % 2 else []
        case.check(case.run(shares, "sharded", str(seed), "micro=2", "turns=2", *kept), loss, state)
    case.check(case.run("3,0,3", "sharded", "2", "kept", "micro=3", "turns=2", "512"), loss, state)
    case.check(case.run("1,2,3", "sharded", "5", "micro=3", "turns=3", "again=1"), loss, state)


@pytest.mark.parametrize("name", TOGETHER)
def test_what_needs_all_samples_is_not_done_in_micro_batches(case, name):
    command = [BUILD / "lower_tool", case(name).path, "4,2", "spread", "micro=2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wanted = f"synth.accumulation: {name}: a step cannot be done in 2 micro-batches: {TOGETHER[name]}"
    assert done.returncode == 1 and done.stderr.startswith(wanted), done.stderr


# Batch norm alone needs all samples at once.
NORMED = ["cnn", "resnet", "batch_norms", "averaged_norms", "normed_sums", "normed_mask", "normalized_inputs"]
NORMED += [name for name in DRAWN if name not in TOGETHER and _is_together(name)]


@pytest.mark.parametrize("name", NORMED)
def test_micro_batches_with_own_statistics_equal_pytorchs_loop(case, name):
    """Each by its own statistics of batch norm, over all devices; buffers go from one to the next."""
    case = case(name)
    for times, shares in ((2, ("3,1,2", "5,1", "2,2,1,1")), (3, ("3,0,3", "4,1,1"))):
        wanted = case.accumulated(times)
        options = (f"micro={times}", "own")
        case.check(case.run(shares[0], "spread", *options), *wanted)
        for seed, split in enumerate((shares[0], *shares)):
            case.check(case.run(split, "sharded", str(seed), *options, *(["kept", "512"] if seed % 2 else [])), *wanted)
        case.check(case.run(shares[0], "sharded", "3", *options, "turns=2"), *wanted)


@pytest.mark.parametrize("name", sampled(MODELS, 1))
def test_operators_done_again_in_the_backward_pass_change_nothing(case, name):
    """All of the forward pass, or half of it: alone, by samples, and split at random; in micro-batches."""
    case = case(name)
    loss, state = case.eager()
    case.check(case.run(str(len(case.inputs[0])), "spread", "again=0"), loss, state)
    case.check(case.run("4,2", "spread", "again=1"), loss, state)
    case.check(case.run("3,1,2", "sharded", "1", "kept", "again=2", "512"), loss, state)
    if not _is_together(name):
        case.check(case.run("3,1,2", "sharded", "0", "micro=2", "again=0"), loss, state)
    if name in NORMED:
        case.check(case.run("3,0,3", "spread", "micro=3", "own", "again=3"), *case.accumulated(3))


def test_what_is_done_again_is_not_kept(case):
    """The values of an MLP's hidden layers are made twice, and the first ones freed before the loss."""
    case = case("mlp")
    once, twice = (case.lower("6", "spread", *again) for again in ([], ["again=0"]))
    assert once.count("aten::relu(") < twice.count("aten::relu(") <= 2 * once.count("aten::relu(")


def test_pytorchs_loop_is_what_accumulation_is_compared_with(case):
    """Written out: two halves, each a backward pass of half the mean of its own loss."""
    case = case("cnn")
    module = copy.deepcopy(case.module)
    parts = zip(*(value.chunk(2) for value in case.inputs), strict=True)
    losses = [module(*part)[0] / 2 for part in parts]
    for loss in losses:
        loss.backward()
    loss, state = case.accumulated(2)
    assert loss == pytest.approx(sum(losses).item(), rel=1e-6)
    for name, value in module.named_parameters():
        assert_close(state[name], value - LR * value.grad, 1e-6, name)
    for name, value in module.named_buffers():
        assert_close(state[name], value, 1e-6, name)
        if "tracked" in name:
            assert value.item() == 2


def test_own_statistics_leave_what_else_needs_all_samples_refused(case):
    command = [BUILD / "lower_tool", case("normed_pairs").path, "4,2", "spread", "micro=2", "own"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "normed_pairs: a step cannot be done in 2 micro-batches: operator aten::" in done.stderr
    assert "batch_norm" not in done.stderr


def test_rows_stay_where_they_are_indexed_by_their_own_numbers(case):
    text = case("indexing").lower("3,1,2")
    assert "aten::arange.start(3, 4, " in text  # the second device's row
    assert "motley::all_gather" not in text


@pytest.mark.parametrize("shares, bucket_bytes", [("3,1,2", "4194304"), ("4,0,2", "512")])
@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_kept_in_parts_equal_one(case, name, shares, bucket_bytes):
    case = case(name)
    loss, state = case.eager()
    text = case.lower(shares, "spread", "kept", bucket_bytes)
    case.check(run_program(text, case.tensors, case.inputs), loss, state)
    if bucket_bytes == "4194304":
        assert text.count("motley::reduce_scatter(") == 3  # one bucket, on three devices


@pytest.mark.parametrize("name", sampled(MODELS, 2))
def test_parameters_gathered_again_equal_one(case, name):
    """All parameters in parts, all or half of them gathered for each pass: by samples, split at random, with
    operators done again, in micro-batches."""
    case = case(name)
    loss, state = case.eager()
    case.check(case.run("3,1,2", "spread", "kept", "regather=0", "512"), loss, state)
    case.check(case.run("3,0,3", "sharded", "1", "kept", "again=2", "regather=1", "512"), loss, state)
    if not _is_together(name):
        case.check(case.run("3,1,2", "sharded", "0", "kept", "micro=2", "again=0", "regather=0"), loss, state)
    if name in NORMED:
        case.check(case.run("3,0,3", "spread", "kept", "micro=3", "own", "regather=0"), *case.accumulated(3))


def test_a_copy_gathered_again_is_gone_between_passes(case):
    """Each layer's weight is whole in its forward pass and in its backward pass, and not between them."""
    case = case("mlp")
    once, twice = (case.lower("3,3", "spread", "kept", "1", *again) for again in ([], ["regather=0"]))
    assert once.count("motley::all_gather") < twice.count("motley::all_gather") <= 2 * once.count("motley::all_gather")


OPTIMIZER = {"kind": "sgd", "lr": 0.1, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0,
             "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}  # fmt: skip
# Optimizer, recipe. In one step of Adam and its like an element whose gradient is nearly nothing
# moves by its sign, which rounding decides: epsilon is large here, and what differs by 1e-5 or less
# than ten times what a change of every weight's last bit does to PyTorch is equal.
RECIPES = {
    "clipped": ({}, {"clip_norm": 0.1}),
    "clipped_values": ({"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}, {"clip_value": 1e-3}),
    "groups": ({"kind": "adamw", "weight_decay": 0.2, "eps": 1e-2}, {"no_decay": ["*.bias"], "lr_scale": {"*.weight": 0.5}}),
    "frozen": ({"kind": "adam", "eps": 1e-2}, {"freeze": ["*.bias"], "clip_norm": 0.01}),
    "adagrad": ({"kind": "adagrad", "eps": 1e-2}, {}),
    "rmsprop": ({"kind": "rmsprop", "beta2": 0.99, "eps": 1e-2, "momentum": 0.5}, {"average": 0.9}),
    "lamb": ({"kind": "lamb", "eps": 1e-2, "weight_decay": 0.01}, {"clip_norm": 0.5}),
    "adafactor": ({"kind": "adafactor", "lr": 0.01, "eps": 1e-3}, {}),
    "muon": ({"kind": "muon", "lr": 0.01, "momentum": 0.95, "nesterov": True, "eps": 1e-2}, {"loss_scale": {"initial": 1024.0, "growth": 2.0, "backoff": 0.5, "interval": 2000}}),
}  # fmt: skip


def _difference(found, wanted):
    return ((found.double() - wanted.double()).norm() / (wanted.double().norm() + 1e-3)).item()


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", ["gpt_tied", "moe", "resnet", "vit"] if SLOW else ["gpt_tied"])
def test_recipes_equal_pytorch(case, name, recipe):
    """Gradients become parameters as in PyTorch's own loop: on one device, by samples, with operators
    split and parameters kept in parts, and with states shared by replicas that are cut differently."""
    case = case(name)
    optimizer, extra = RECIPES[recipe]
    plan = {"optimizer": OPTIMIZER | optimizer, "recipe": extra}
    loop, disturbed = (Loop(copy.deepcopy(case.module), plan) for _ in range(2))
    loss = loop.step(case.inputs)
    state = loop.module.state_dict()
    disturb(disturbed.module)
    disturbed.step(case.inputs)
    moved = max(_difference(value, state[name]) for name, value in disturbed.module.state_dict().items())
    option = "recipe=" + json.dumps(plan)
    tolerance = max(1e-5, 10 * moved)
    batch = len(case.inputs[0])
    splits = [(str(batch),), (f"3,{batch - 4},1",), ("3,1,2", "sharded", "0", "kept", "512")]
    shared = [(split, f"stages={seed}", "512") for seed in range(20) for split in ["2,3,1"]]
    shared = [split for split in shared if '"owners"' in case.lower(*split, "plan")]
    assert len(shared) > 3
    for split in splits + shared[:4]:
        machines = case.run(*split, option)
        case.check(machines, loss, state, tolerance)
        if loop.norm is not None:
            assert machines[0].norm == pytest.approx(loop.norm, rel=1e-5)


def _elements(buffer):
    """Of a buffer: which of the whole tensor's elements it has."""
    if buffer.part is None:
        return np.arange(int(np.prod(buffer.shape)))
    before, _, extent, after = buffer.part
    return buffer.take(torch.arange(before * extent * after)).flatten().numpy()


def _check_mirrors(machines, survive):
    """They have the bits of what they mirror, and so many devices can be lost: each element is on one more."""
    holders, mirrors = {}, 0  # of each tensor: by rank, which elements it has
    for rank, machine in enumerate(machines):
        for id, buffer in machine.device.buffers.items():
            if buffer.kind not in ("parameter", "state", "model_buffer", "mirror"):
                continue
            elements = _elements(buffer)
            here = holders.setdefault(buffer.tensor(), {}).setdefault(rank, set())
            here.update(elements.tolist())
            if buffer.kind != "mirror":
                continue
            mirrors += 1
            other = machines[int(buffer.name.split("/")[1])]
            (original,) = (i for i, each in other.device.buffers.items() if each.name == buffer.tensor())
            assert torch.equal(machine.values[id], other.values[original]), buffer.name
    wanted = min(survive + 1, len(machines))
    for name, ranks in holders.items():
        counts = np.unique(np.concatenate([np.fromiter(each, np.int64) for each in ranks.values()]), return_counts=True)[1]
        assert counts.min(initial=wanted) >= wanted, name
    return mirrors


@pytest.mark.parametrize("name", sampled(MODELS, 0))
def test_mirrors_have_the_bits_of_what_they_mirror(case, name):
    """Operators split at random, parameters in parts, and replicas cut into regions; of one loss and of two."""
    case = case(name)
    loss, state = case.eager()
    splits = [("2,2,1,1", "sharded", "1"), ("3,0,2,1", "sharded", "2", "kept", "512"), ("3,1,2", "spread", "kept")]
    splits += [(("2,3,1", "1,1,2,2")[seed % 2], f"stages={seed}", "512") for seed in range(30 if SLOW else 3)]
    found = 0
    for number, split in enumerate(splits):
        survive = 1 + number % 2
        machines = case.run(*split, f"survive={survive}")
        case.check(machines, loss, state)
        found += _check_mirrors(machines, survive)
    assert found > 0


@pytest.mark.parametrize("recipe", RECIPES)
def test_mirrors_follow_recipes(case, recipe):
    """Masters, averages, factors, directions and the loss's scale; states shared by replicas cut differently."""
    case = case("gpt_tied")
    optimizer, extra = RECIPES[recipe]
    option = "recipe=" + json.dumps({"optimizer": OPTIMIZER | optimizer, "recipe": extra})
    shared = [("2,3,1", f"stages={seed}", "512") for seed in range(20)]
    shared = [split for split in shared if '"owners"' in case.lower(*split, "plan")]
    found = []
    for split in [("3,1,2", "sharded", "0", "kept", "512"), *shared[:4]]:
        for survive in (1, 2):
            found.append(_check_mirrors(case.run(*split, option, f"survive={survive}"), survive))
    assert found[0] > 0 and sum(found[2:]) > 0


def test_local_batch_norm_averages_running_statistics(case):
    case = case("cnn")
    machines = case.run("4,2", "local")
    halves = []
    for window in (slice(0, 4), slice(4, 6)):
        module = copy.deepcopy(case.module)
        module(*[value[window] for value in case.inputs])
        halves.append(module.state_dict())
    for name, value in machines[0].named().items():
        if "running" in name:
            wanted = halves[0][name] * 4 / 6 + halves[1][name] * 2 / 6
            assert_close(value, wanted, 1e-5, name)
        assert torch.equal(value, machines[1].named()[name])
