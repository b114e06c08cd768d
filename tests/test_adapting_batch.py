"""Runs whose batch changes while they train: decided by policies, or given as decisions. The result is that of one device
with the same batches and learning rates, and every sample comes once an epoch. What each policy decides, and all that is
asked of workers for it, motley/control/training/batch_decisions_test.cc shows; here one of a kind trains."""

import importlib
import itertools
import json
import pathlib
import shutil
import sys

import numpy as np
import pytest
import torch
from conftest import BUILD, CLUSTER, DIGITS, EXAMPLES, SLOW, sampled
from kept import kept
from safetensors.torch import load_file

torch.set_num_threads(1)  # other tests run beside these: threads that wait for each other would wait for them, too
LIMIT = 1e-5
SMOOTH = f"{pathlib.Path(__file__).with_name('smooth.py')}:model"  # for trainings of many steps


@pytest.fixture
def smooth(export):
    return export(SMOOTH)


@pytest.fixture
def three(cluster):
    return cluster


@pytest.fixture(scope="module", autouse=True)
def priced(profiled, mlp, cluster):
    """Something to price plans by; the tests give what they begin with."""
    profiled(mlp, cluster, "--global-batch", 60)


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def steps_of(folder):
    return [each for each in lines(folder / "log.jsonl") if "loss" in each]


def run(motley, model, three, folder, *flags, lr=0.02, data=DIGITS):
    return motley("run", "-m", model, "-C", three, "--data", data, "--run-dir", folder, "--lr", lr, "--json", *flags)


def plan_text(motley, model, three, folder, split, *flags, lr=0.02):
    path = folder / "drawn.json"
    done = motley("plan", "-m", model, "-C", three, "--global-batch", sum(split), "--batch-split", ",".join(map(str, split)),
                  "--lr", lr, "--profile", "model", "-o", path, *flags)  # fmt: skip
    assert done.code == 0, done.stderr
    return path.read_text()


def decision(step, plan, shares, factor):
    action = {"do": "batch", "shares": [{"device": f"{d}:0", "samples": n} for d, n in shares], "lr_factor": factor}
    return {"policy": "test", "seen_step": step, "at": 0.0, "action": action, "expected_s": None, "why": "because",
            "begins": step, "came_s": None, "before_s": None, "plan": plan}  # fmt: skip


# Step from which on, samples of a, b and c, factor of the learning rate: grows, is split anew, loses a device, shrinks,
# changes the rate alone.
BATCHES = [(0, (20, 12, 8), 1.0), (5, (50, 30, 17), 1.7), (9, (47, 50, 0), 1.7), (14, (13, 9, 2), 0.8), (18, (13, 9, 2), 1.1)]


def decisions_file(motley, model, three, folder, *flags, lr=0.02):
    path = folder / "given.jsonl"
    with open(path, "w") as file:
        for step, samples, factor in BATCHES:
            text = plan_text(motley, model, three, folder, samples, *flags, lr=lr)
            shares = [(name, n) for name, n in zip("abc", samples, strict=True) if n]
            file.write(json.dumps(decision(step, text, shares, factor)) + "\n")
    return path


class Reference:
    """PyTorch's own loop on one device, by the batches and rates of a run's log, in so many micro-batches a step."""

    def __init__(self, function, optimizer, data=DIGITS, dtype=torch.float32, micro_batches=1):
        self.micro_batches = micro_batches
        sys.path[:0] = [str(EXAMPLES)]
        file, name = function.split(":")
        self.module, _ = getattr(importlib.import_module(pathlib.Path(file).stem), name)()
        self.module.to(dtype).train()
        self.optimizer = optimizer(self.module.parameters())
        arrays = np.load(data)
        arrays = [torch.from_numpy(arrays[name]) for name in arrays.files]
        self.arrays = [each.to(dtype) if each.is_floating_point() else each for each in arrays]
        self.position = 0
        self.losses = []

    def loss_of(self, numbers):
        out = self.module(*(array[numbers] for array in self.arrays))
        return out["loss"] if isinstance(out, dict) else out if isinstance(out, torch.Tensor) else out[0]

    def numbers(self, batch):
        return (torch.arange(batch) + self.position) % len(self.arrays[0])

    def step(self, batch, lr):
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        self.optimizer.zero_grad()
        total = 0.0
        for part in torch.chunk(self.numbers(batch), self.micro_batches):
            loss = self.loss_of(part) / self.micro_batches
            loss.backward()
            total += loss.item()
        self.optimizer.step()
        self.losses.append(total)
        self.position += batch

    def follow(self, steps):
        for each in steps:
            self.step(each["batch"], each["lr"])
        return self

    def worst(self, folder):
        return self.apart(load_file(folder / "model.safetensors"))

    def apart(self, found):
        return max((found[name].double() - value.double()).abs().max().item()
                   for name, value in self.module.state_dict().items())  # fmt: skip


def check_as_exact_as_torch(steps, losses, folder, function, optimizer, data=DIGITS, micro_batches=1):
    """For trainings that amplify rounding, by as much as their batches and rates have it: losses and parameters are as near
    to those of float64 as PyTorch's own float32 is, the next digit aside."""
    exact = Reference(function, optimizer, data, torch.float64, micro_batches).follow(steps)
    single = Reference(function, optimizer, data, micro_batches=micro_batches).follow(steps)
    assert exact.worst(folder) < max(LIMIT, 10 * exact.apart(single.module.state_dict()))
    wanted = np.array(exact.losses)
    loss_apart = np.abs(np.array(single.losses) - wanted).max()
    assert np.all(np.abs(np.array(losses) - wanted) < np.maximum(LIMIT * (1 + wanted), 10 * loss_apart))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.1)


@pytest.mark.parametrize(
    "function, optimizer, flags",
    sampled(
        [
            ("mlp.py:model", sgd, ()),
            ("mlp.py:model", adam, ("--optimizer", "adam")),
            ("digits_cnn.py:model", momentum, ("--momentum", 0.9)),  # batch norm
        ]
    ),
)
def test_given_batches_equal_one_device(motley, export, three, tmp_path, function, optimizer, flags):
    model = export(function)
    lr = 0.002 if optimizer is adam else 0.02
    given = decisions_file(motley, model, three, tmp_path, *flags, lr=lr)
    done = run(motley, model, three, tmp_path / "run", "--decisions", given, "--steps", 36, *flags, lr=lr)
    assert done.code == 0, done.stderr
    steps = steps_of(tmp_path / "run")
    # The training has 36 steps of the first batch, 40, or as many samples.
    batches = [each["batch"] for each in steps]
    taken = np.cumsum(batches)
    assert taken[-1] >= 36 * 40 > taken[-2]
    begins = [step for step, _, _ in BATCHES]
    for at, batch in enumerate(batches):
        _, samples, factor = BATCHES[np.searchsorted(begins, at, side="right") - 1]
        assert batch == sum(samples)
        assert steps[at]["lr"] == pytest.approx(lr * factor)
    reference = Reference(function, optimizer).follow(steps)
    np.testing.assert_allclose(done.json["losses"], reference.losses, rtol=1e-4)
    assert reference.worst(tmp_path / "run") < LIMIT
    kept = [each for each in lines(tmp_path / "run/decisions.jsonl") if each["policy"] == "test"]
    assert [each["begins"] for each in kept] == begins[1:]
    # Stopped in the middle of it and gone on with, it has the same bits.
    halves = tmp_path / "halves"
    for until in (12, 36):
        part = run(motley, model, three, halves, "--decisions", given, "--steps", until, *flags, lr=lr)
        assert part.code == 0, part.stderr
    assert [each["batch"] for each in steps_of(halves)] == batches
    state = json.loads((halves / "checkpoint/latest/state.json").read_text())
    assert (state["step"], state["data_position"], state["global_batch"]) == (len(batches), taken[-1], 40)
    for name, value in load_file(tmp_path / "run/model.safetensors").items():
        assert torch.equal(value, load_file(halves / "model.safetensors")[name]), name


def test_each_sample_comes_once_an_epoch(motley, mlp, three, tmp_path):
    """Of a model that hardly learns, the sum of all losses says how often each sample has been counted."""
    rng = np.random.default_rng(0)
    data = tmp_path / "few.npz"
    count = 150
    np.savez(data, x=rng.normal(size=(count, 1, 8, 8)).astype(np.float32), y=rng.integers(0, 10, count))
    given = decisions_file(motley, mlp, three, tmp_path)
    frozen = tmp_path / "frozen.jsonl"
    frozen.write_text("".join(json.dumps(dict(each, action=dict(each["action"], lr_factor=1e-12))) + "\n"
                              for each in lines(given)))  # fmt: skip
    folder = tmp_path / "run"
    done = run(motley, mlp, three, folder, "--decisions", frozen, "--epochs", 12, "--shuffle", 3, data=data)
    assert done.code == 0, done.stderr
    sizes = np.array([each["batch"] for each in steps_of(folder)])
    ends = np.cumsum(sizes)
    assert ends[-1] >= 12 * count > ends[-2] and len(set(sizes)) == 3
    sums = np.cumsum(np.array(done.json["losses"]) * sizes)
    module = Reference("mlp.py:model", sgd, data)
    with torch.no_grad():
        every = sorted(module.loss_of(torch.tensor([i])).item() for i in range(count))
    # Whole epochs have each sample once, what is over of one none twice.
    for end, total in zip(ends, sums, strict=True):
        whole, rest = divmod(int(end), count)
        low, high = sum(every[:rest]), sum(every[count - rest :])
        found = total - whole * sum(every)
        assert low - 1e-3 * end <= found <= high + 1e-3 * end, (end, found, low, high)
    # Exactly so where epochs end with a step.
    exact = {int(end): total for end, total in zip(ends, sums, strict=True) if end % count == 0}
    for end, total in exact.items():
        assert total == pytest.approx(end // count * sum(every), rel=1e-5)


def pieces_of(numbers, samples, times=1):
    """What each device has of a batch: of each micro-batch the next part."""
    rows = torch.split(numbers.reshape(times, -1), [n // times for n in samples], 1)
    return [each.flatten() for each in rows]


def exact_squares(reference, samples, moments=None, eps=1e-8, times=1):
    """Squared norms of the mean gradients of the pieces, one after the other, and of all; statistics of batch norm are
    those of each piece, and stay as they are."""
    kept = {name: value.clone() for name, value in reference.module.state_dict().items()}
    parameters = list(reference.module.parameters())
    scales = [1.0] * len(parameters)
    if moments:
        states = [reference.optimizer.state[p] for p in parameters]
        scales = [(each["exp_avg_sq"].double() / (1 - 0.999 ** int(each["step"]))).sqrt() + eps for each in states]
    norms, whole = [], [0.0] * len(parameters)
    for piece in pieces_of(reference.numbers(sum(samples)), samples, times):
        reference.optimizer.zero_grad()
        reference.loss_of(piece).backward()
        gradients = [p.grad.double() / scale for p, scale in zip(parameters, scales, strict=True)]
        norms.append(sum(each.square().sum().item() for each in gradients))
        whole = [sum_ + each * (len(piece) / sum(samples)) for sum_, each in zip(whole, gradients, strict=True)]
    reference.module.load_state_dict(kept)
    return norms, sum(each.square().sum().item() for each in whole)


@pytest.mark.parametrize(
    "optimizer, shares, micro_batches, flags",
    sampled(
        [
            (sgd, (29, 20, 11), 1, ()),
            (adam, (29, 20, 11), 1, ("--optimizer", "adam")),
            (adam, (30, 21, 9), 3, ("--optimizer", "adam")),
            (sgd, (28, 20, 12), 4, ()),
        ]
    ),
)
def test_noise_is_that_of_the_gradients(motley, mlp, three, tmp_path, optimizer, shares, micro_batches, flags):
    """Square norms of every step, as PyTorch has them; by second moments where adam counts so, from step 5 on. A device's
    part is what it has of all micro-batches."""
    plan = tmp_path / "plan.json"
    lr = 0.002 if optimizer is adam else 0.02
    plan.write_text(plan_text(motley, mlp, three, tmp_path, shares, "--micro-batches", micro_batches, *flags, lr=lr))
    done = run(motley, mlp, three, tmp_path / "run", "--plan", plan, "--adapt", "batch", "--steps", 10, "--batch-limits", "60:60",
               "--profiles", tmp_path / "none.db", "--batch-rule", "none", *flags, lr=lr)  # fmt: skip
    assert done.code == 0, done.stderr
    steps = steps_of(tmp_path / "run")
    reference = Reference("mlp.py:model", optimizer, micro_batches=micro_batches)
    seen = 0
    for at, each in enumerate(steps):
        if optimizer is adam and at < 5:
            assert "noise" not in each
        elif [piece["samples"] for piece in each["noise"]["pieces"]] == list(shares):
            pieces, whole = exact_squares(reference, shares, optimizer is adam, times=micro_batches)
            assert each["noise"]["squared_norm"] == pytest.approx(whole, rel=1e-3)
            assert [piece["squared_norm"] for piece in each["noise"]["pieces"]] == pytest.approx(pieces, rel=1e-3)
            seen += 1
        reference.step(each["batch"], each["lr"])
    assert seen > 0
    assert reference.worst(tmp_path / "run") < LIMIT


@pytest.mark.parametrize("shares, micro_batches", [((29, 20, 11), 1), ((28, 20, 12), 2)])
def test_noise_behind_batch_norm(motley, cnn, three, tmp_path, shares, micro_batches):
    """Batch norm over the global batch, or a micro-batch, ties its samples together: what is behind the last one counts."""
    plan = tmp_path / "plan.json"
    plan.write_text(plan_text(motley, cnn, three, tmp_path, shares, "--micro-batches", micro_batches))
    done = run(motley, cnn, three, tmp_path / "run", "--plan", plan, "--adapt", "batch", "--steps", 4, "--batch-limits", "60:60",
               "--profiles", tmp_path / "none.db", "--batch-rule", "none")  # fmt: skip
    assert done.code == 0, done.stderr
    reference = Reference("digits_cnn.py:model", sgd, micro_batches=micro_batches)
    x, y = reference.arrays
    for each in steps_of(tmp_path / "run"):
        numbers = reference.numbers(sum(shares))
        state = {name: value.clone() for name, value in reference.module.state_dict().items()}
        parts = torch.chunk(numbers, micro_batches)
        features = torch.cat([reference.module.features(x[part]).detach() for part in parts])
        reference.module.load_state_dict(state)
        norms = []
        every = torch.arange(sum(shares))
        for piece in [*pieces_of(every, shares, micro_batches), every]:
            reference.optimizer.zero_grad()
            scores = reference.module.classify(features[piece])
            torch.nn.functional.cross_entropy(scores, y[numbers][piece]).backward()
            norms.append(sum(p.grad.double().square().sum().item() for p in reference.module.classify.parameters()))
        assert each["noise"]["squared_norm"] == pytest.approx(norms[-1], rel=1e-3)
        assert [piece["squared_norm"] for piece in each["noise"]["pieces"]] == pytest.approx(norms[:-1], rel=1e-3)
        reference.step(each["batch"], each["lr"])


def shares_of(folder):
    """Samples of each replica of each plan that the run's decisions brought, with how many micro-batches each has."""
    plans = [json.loads(each["plan"]) for each in lines(folder / "decisions.jsonl") if each["plan"]]
    return [[(each["samples"], each.get("micro_batches", 1)) for each in plan["replicas"]] for plan in plans]


@pytest.mark.parametrize(
    "function, policy, micro_batches",
    [
        ("digits_cnn.py:model", "motley", 2),  # batch norm of each micro-batch
        (SMOOTH, "motley", 3),
        (SMOOTH, "simigrad", 2),
        (SMOOTH, "cannikin", 2),
        (SMOOTH, "jabas", 2),
        ("digits_cnn.py:model", "adaptdl", 2),
    ][: None if SLOW else 1],
)
def test_micro_batches_on_several_devices(motley, export, three, tmp_path, function, policy, micro_batches):
    """They stay as many, and shares are multiples of them: the result is that of one device that accumulates so, with
    statistics of batch norm of each micro-batch. Repeated, it has the same bits; a second call goes on."""
    model, k = export(function), micro_batches
    folder = tmp_path / "run"
    rng = np.random.default_rng(0)
    data = tmp_path / "noise.npz"  # labels are noise: batches grow
    np.savez(data, x=rng.normal(size=(360, 1, 8, 8)).astype(np.float32), y=rng.integers(0, 10, 360))
    plan = tmp_path / "plan.json"
    plan.write_text(plan_text(motley, model, three, tmp_path, (6, 6, 6), "--momentum", 0.9, "--micro-batches", k, lr=0.005))
    flags = ["--plan", plan, "--momentum", 0.9, "--adapt", "batch", "--policy", policy, "--batch-limits", "17:97",
             "--profiles", tmp_path / "none.db"]  # fmt: skip
    first, last = (200, 300) if SLOW else (90, 140)
    for steps in (first, last):
        done = run(motley, model, three, folder, *flags, "--steps", steps, lr=0.005, data=data)
        assert done.code == 0, done.stderr
        for words in ("is not gone on with", "cannot be had", "not possible"):
            assert words not in done.stderr, done.stderr
    steps = steps_of(folder)
    batches = [each["batch"] for each in steps]
    assert min(batches) >= 17 and max(batches) <= 97 and len(set(batches)) > 1, batches
    for replicas in shares_of(folder):
        assert all(samples % k == 0 and times == (k if len(replicas) > 1 else max(2, k)) for samples, times in replicas), replicas
    assert any(len(replicas) > 1 for replicas in shares_of(folder)[1:])
    check_as_exact_as_torch(steps, done.json["losses"], folder, function, momentum, data, k)
    again = run(motley, model, three, tmp_path / "again", "--decisions", folder / "decisions.jsonl", "--steps", last,
                "--momentum", 0.9, lr=0.005, data=data)  # fmt: skip
    assert again.code == 0, again.stderr
    assert again.json["losses"] == done.json["losses"]
    for name, value in load_file(folder / "model.safetensors").items():
        assert torch.equal(value, load_file(tmp_path / "again/model.safetensors")[name]), name


def test_micro_batches_that_are_asked_for(motley, mlp, three, tmp_path):
    """As a user says it: planned, and begun by a split in so many; its label says so."""
    flags = ["--profile", "model", "--micro-batches", 4, "--adapt", "batch", "--steps", 8]
    done = run(motley, mlp, three, tmp_path / "run", "--global-batch", 60, *flags)
    assert done.code == 0, done.stderr
    for replicas in shares_of(tmp_path / "run"):
        assert all(samples % 4 == 0 and times == 4 for samples, times in replicas)
    assert "in 4 micro-batches" in lines(tmp_path / "run/decisions.jsonl")[0]["why"]
    refused = run(motley, mlp, three, tmp_path / "no", "--global-batch", 61, *flags)
    assert refused.code == 2 and "found 4 for a global batch of 61" in refused.stderr, refused.stderr


@pytest.fixture(scope="module")
def one(workspace):
    """A single device."""
    path = workspace / "one.toml"
    path.write_text(CLUSTER[: CLUSTER.index('[[node]]\nname = "b"')])
    return path


@pytest.fixture(scope="module")
def by_one(motley, mlp, one, workspace):
    """The flag by which its plans are priced: from what it took alone, which no other profile has."""

    def measure(path):
        assert motley("profile", "-m", mlp, "-C", one, "--global-batch", 60, "--profiles", path).code == 0

    store = kept(["profile of one device", BUILD / "motley", BUILD / "motley-worker", mlp, one], measure)
    return ["--profiles", shutil.copy(store, workspace / "one.db")]


def tokens(folder):
    """Random texts for examples/families.py:gpt_tied, whose labels are the next tokens."""
    sys.path[:0] = [str(EXAMPLES)]
    _, inputs = importlib.import_module("families").gpt_tied()
    rng = np.random.default_rng(0)
    data = folder / "tokens.npz"
    np.savez(data, **{f"x{i}": rng.integers(0, int(x.max()), (90, *x.shape[1:])) for i, x in enumerate(inputs)})
    return data


@pytest.mark.parametrize(
    "function, optimizer, batch, micro_batches, flags",
    [
        ("digits_cnn.py:model", sgd, 12, 3, ()),  # batch norm of each micro-batch
        *sampled(
            [
                ("mlp.py:model", sgd, 40, 1, ()),  # in two
                ("mlp.py:model", adam, 41, 1, ("--optimizer", "adam")),  # of 21 and 20
                ("families.py:gpt_tied", adam, 6, 1, ("--optimizer", "adam")),  # a weight used twice
                ("families.py:gpt_tied", sgd, 7, 1, ()),
                ("mlp.py:model", sgd, 60, 4, ()),
            ]
        ),
    ],
)
def test_noise_of_one_device(motley, export, one, by_one, tmp_path, function, optimizer, batch, micro_batches, flags):
    """Square norms of each micro-batch's gradient and of all, as PyTorch has them; the result is that of the batch."""
    model = export(function)
    data = tokens(tmp_path) if "gpt" in function else DIGITS
    plan = tmp_path / "plan.json"
    lr = 0.002 if optimizer is adam else 0.02
    plan.write_text(plan_text(motley, model, one, tmp_path, (batch,), "--micro-batches", micro_batches, *by_one, *flags, lr=lr))
    done = run(motley, model, one, tmp_path / "run", "--plan", plan, "--adapt", "batch", "--steps", 9, "--batch-limits",
               f"{batch}:{batch}", "--profiles", tmp_path / "none.db", "--batch-rule", "none", *flags, lr=lr, data=data)  # fmt: skip
    assert done.code == 0, done.stderr
    parts = max(2, micro_batches)
    sizes = [batch // parts + (i < batch % parts) for i in range(parts)]
    reference = Reference(function, optimizer, data, micro_batches=micro_batches)
    seen = 0
    for at, each in enumerate(steps_of(tmp_path / "run")):
        if optimizer is adam and at < 5:
            assert "noise" not in each
        else:
            pieces, whole = exact_squares(reference, sizes, optimizer is adam)
            assert [piece["samples"] for piece in each["noise"]["pieces"]] == sizes
            assert each["noise"]["squared_norm"] == pytest.approx(whole, rel=1e-3)
            assert [piece["squared_norm"] for piece in each["noise"]["pieces"]] == pytest.approx(pieces, rel=1e-3)
            seen += 1
        reference.step(each["batch"], each["lr"])
    assert seen >= 4
    np.testing.assert_allclose(done.json["losses"], reference.losses, rtol=1e-5)
    # Gradients of the keys' biases are 0 but for rounding, of which adam makes whole steps.
    assert ("gpt" in function and optimizer is adam) or reference.worst(tmp_path / "run") < LIMIT


def test_one_device_decides(motley, smooth, one, by_one, tmp_path):
    """Labels are noise, so the batch grows to its limit, and the result is that of the batches."""
    rng = np.random.default_rng(0)
    data = tmp_path / "noise.npz"
    np.savez(data, x=rng.normal(size=(600, 1, 8, 8)).astype(np.float32), y=rng.integers(0, 10, 600))
    folder = tmp_path / "run"
    flags = ["--global-batch", 12, "--adapt", "batch", "--batch-limits", "12:200", "--profile", "model", *by_one]
    done = run(motley, smooth, one, folder, *flags, "--steps", 600, lr=0.01, data=data)
    assert done.code == 0, done.stderr
    steps = steps_of(folder)
    batches = [each["batch"] for each in steps]
    assert batches[0] == 12 and 30 < max(batches) <= 200, batches
    assert measured(folder)[:32] == list(range(32))
    assert all(len(each["noise"]["pieces"]) == 2 for each in steps if "noise" in each)
    # Labels that are noise are learned by heart: rounding grows, by other batches in each run.
    check_as_exact_as_torch(steps, done.json["losses"], folder, SMOOTH, sgd, data)
    more = run(motley, smooth, one, folder, *flags, "--steps", 700, lr=0.01, data=data)
    assert more.code == 0 and "is not gone on with" not in more.stderr, more.stderr
    assert steps_of(folder)[len(steps)]["batch"] == batches[-1]


@pytest.mark.parametrize("policy", ["motley", "simigrad", "adaptdl"] if SLOW else ["motley"])
def test_a_policy_decides(motley, cnn, three, tmp_path, policy):
    """Its batches are within the limits, the result is that of one device, a repetition has the same bits, and a
    second call goes on deciding where the first one was."""
    folder = tmp_path / "run"
    plan = tmp_path / "plan.json"
    plan.write_text(plan_text(motley, cnn, three, tmp_path, (6, 4, 2), "--momentum", 0.9))
    flags = ["--plan", plan, "--momentum", 0.9, "--adapt", "batch", "--policy", policy, "--batch-limits", "12:96",
             "--profiles", tmp_path / "none.db"]  # fmt: skip
    first = run(motley, cnn, three, folder, *flags, "--steps", 100)
    assert first.code == 0, first.stderr
    state = json.loads((folder / "checkpoint/latest/policy.json").read_text())
    assert state["policy"] == policy
    begun = len(steps_of(folder))
    done = run(motley, cnn, three, folder, *flags, "--steps", 200)
    assert done.code == 0, done.stderr
    assert "is not gone on with" not in done.stderr, done.stderr
    steps = steps_of(folder)
    batches = [each["batch"] for each in steps]
    assert batches[0] == 12 and min(batches) >= 12 and max(batches) <= 96
    assert batches[begun] == batches[begun - 1]
    assert len(set(batches)) > 1, lines(folder / "decisions.jsonl")
    check_as_exact_as_torch(steps, done.json["losses"], folder, "digits_cnn.py:model", momentum)
    again = run(motley, cnn, three, tmp_path / "again", "--decisions", folder / "decisions.jsonl", "--steps", 200,
                "--momentum", 0.9)  # fmt: skip
    assert again.code == 0, again.stderr
    assert again.json["losses"] == done.json["losses"]
    report = motley("report", folder)
    assert report.code == 0 and "samples, the batch split" in report.stdout, report.stdout


@pytest.mark.parametrize("micro_batches", [1, 4] if SLOW else [1])
def test_memory_binds(motley, mlp, tmp_path, micro_batches):
    """Labels are noise, so the largest batch is best; devices are given what their memory holds of it, and no more. Of
    micro-batches it holds more."""
    rng = np.random.default_rng(0)
    data = tmp_path / "noise.npz"
    np.savez(data, x=rng.normal(size=(150, 1, 8, 8)).astype(np.float32), y=rng.integers(0, 10, 150))
    memory = {"0.8": 6, "0.4": 5, "0.2": 5}
    text = CLUSTER
    for speed, size in memory.items():
        text = text.replace(f"speed = {speed}", f'speed = {speed}\n  memory = "{size}MiB"')
    cluster = tmp_path / "small.toml"
    cluster.write_text(text)
    plan = tmp_path / "plan.json"
    split = (6, 4, 2) if micro_batches == 1 else (4, 4, 4)
    plan.write_text(plan_text(motley, mlp, cluster, tmp_path, split, "--micro-batches", micro_batches))
    folder = tmp_path / "run"
    done = run(motley, mlp, cluster, folder, "--plan", plan, "--adapt", "batch", "--policy", "adaptdl", "--batch-limits",
               "4:4000", "--profiles", tmp_path / "none.db", "--steps", 500, data=data)  # fmt: skip
    assert done.code == 0, done.stderr
    assert "cannot be had" not in done.stderr and "not possible" not in done.stderr, done.stderr
    steps = steps_of(folder)
    assert 60 < max(each["batch"] for each in steps) < 2000
    peaks = np.array([each["peak_bytes"] for each in steps]).max(axis=0) / 2**20
    assert (peaks <= list(memory.values())).all(), peaks


@pytest.mark.parametrize("micro_batches", [2, 1] if SLOW else [2])
def test_devices_go_and_come_while_the_batch_changes(motley, smooth, three, tmp_path, micro_batches):
    """The fastest device is lost and comes back: batch and learning rate go on, no sample is lost, and the result is
    that of one device with these batches. A second call knows what the first one had learned."""
    folder = tmp_path / "run"
    away = tmp_path / "conditions.json"
    away.write_text(json.dumps({"schema": "motley.conditions/1",
                                "absences": [{"device": "a:0", "from_s": 1, "until_s": 1.8}]}))  # fmt: skip
    flags = ["--global-batch", 12, "--adapt", "batch", "--batch-limits", "12:200", "--elastic", "--survive", 1,
             "--conditions", away, "--micro-batches", micro_batches]  # fmt: skip
    done = run(motley, smooth, three, folder, *flags, "--steps", 6000, lr=0.004)
    assert done.code == 0, done.stderr
    assert [(each["lost"], each["joined"]) for each in done.json["membership"]] == [(["a:0"], []), ([], ["a:0"])]
    steps = steps_of(folder)
    batches = [each["batch"] for each in steps]
    assert [each["step"] for each in steps] == list(range(len(steps)))
    assert sum(batches) >= 6000 * 12 > sum(batches[:-1]) and len(set(batches)) > 1
    lost, back = (each["step"] for each in done.json["membership"])
    kept = lines(folder / "decisions.jsonl")
    plans = [(each["begins"], json.dumps(json.loads(each["plan"])["replicas"])) for each in kept if each["plan"]]
    (*_, first) = (plan for begins, plan in plans if begins <= lost)
    without = [first, *(plan for begins, plan in plans if lost < begins < back)]
    assert all("a:0" not in plan for plan in without)
    assert any(each["policy"] == "motley" and each["begins"] > lost for each in kept), "nobody decided any more"
    for replicas in shares_of(folder) if micro_batches > 1 else []:
        assert all(samples % 2 == 0 and times == 2 for samples, times in replicas), replicas
    check_as_exact_as_torch(steps, done.json["losses"], folder, SMOOTH, sgd, micro_batches=micro_batches)
    more = run(motley, smooth, three, folder, *flags, "--steps", 6200, lr=0.004)
    assert more.code == 0 and "is not gone on with" not in more.stderr, more.stderr
    assert steps_of(folder)[len(steps)]["batch"] == batches[-1]


def test_the_last_device_goes_on_without_noise(motley, cnn, three, tmp_path):
    """Batch norm over the batch: one device alone has nothing to compare, and trains on with the batch that there is."""
    away = tmp_path / "conditions.json"
    absences = [{"device": name, "from_s": 0.4, "until_s": 1.2} for name in ("a:0", "b:0")]
    away.write_text(json.dumps({"schema": "motley.conditions/1", "absences": absences}))
    plan = tmp_path / "plan.json"
    plan.write_text(plan_text(motley, cnn, three, tmp_path, (6, 4, 2)))
    done = run(motley, cnn, three, tmp_path / "run", "--plan", plan, "--adapt", "batch", "--batch-limits", "12:96", "--elastic",
               "--conditions", away, "--steps", 300)  # fmt: skip
    assert done.code == 0, done.stderr
    # Where only the two had the model, it begins anew.
    steps = list({each["step"]: each for each in steps_of(tmp_path / "run")}.values())
    lost = max(each["step"] for each in done.json["membership"] if each["lost"])
    # The batch that there is, or the one that was asked for when the two went.
    alone = list(itertools.takewhile(lambda step: "noise" not in step, steps[lost:]))
    assert len(alone) > 1 and len({step["batch"] for step in alone}) == 1
    check_as_exact_as_torch(steps, done.json["losses"], tmp_path / "run", "digits_cnn.py:model", sgd)


def measured(folder):
    return [each["step"] for each in steps_of(folder) if "noise" in each]


def paces(folder):
    """From which step on noise is measured in every how many-th."""
    return [(each["begins"], each["action"]["every"]) for each in lines(folder / "decisions.jsonl")
            if each["action"]["do"] == "noise"]  # fmt: skip


def test_noise_is_measured_less_often_once_it_is_known(motley, mlp, one, by_one, tmp_path):
    """Of one device, whose batch stays: the policy tries every second step, and bits are those of a run that measures none."""
    plan = tmp_path / "plan.json"
    plan.write_text(plan_text(motley, mlp, one, tmp_path, (60,), "--micro-batches", 4, *by_one, lr=0.001))
    flags = ["--plan", plan, "--profiles", tmp_path / "none.db", "--batch-limits", "60:60", "--batch-rule", "none"]
    run_dir = tmp_path / "run"
    done = run(motley, mlp, one, run_dir, *flags, "--adapt", "batch", "--steps", 60, lr=0.001)
    assert done.code == 0, done.stderr
    (begins, every), *_ = paces(run_dir)
    assert begins >= 32 and every == 2
    assert measured(run_dir)[:begins] == list(range(begins))
    # The order is heard a step or two later.
    later = [step for step in measured(run_dir) if step >= begins + 3]
    assert later and all(step % 2 == 0 for step in later)
    plain = run(motley, mlp, one, tmp_path / "plain", "--plan", plan, "--adapt", "none", "--steps", 60, lr=0.001)
    assert plain.code == 0, plain.stderr
    assert plain.json["losses"] == done.json["losses"]
    for name, value in load_file(run_dir / "model.safetensors").items():
        assert torch.equal(value, load_file(tmp_path / "plain/model.safetensors")[name]), name
    kept = json.loads((run_dir / "checkpoint/latest/policy.json").read_text())
    assert kept["counts_every"] == kept["state"]["pace"]["every"] == paces(run_dir)[-1][1]


def test_all_ranks_measure_in_the_same_steps(motley, mlp, three, tmp_path):
    """A checkpoint says in which steps noise is measured: a run that goes on from it does so on all devices."""
    plan = tmp_path / "plan.json"
    plan.write_text(plan_text(motley, mlp, three, tmp_path, (29, 20, 11)))
    flags = ["--plan", plan, "--profiles", tmp_path / "none.db", "--batch-limits", "60:60", "--batch-rule", "none"]
    run_dir = tmp_path / "run"
    for steps in (6, 30):
        if steps == 30:
            path = run_dir / "checkpoint/latest/policy.json"
            kept = json.loads(path.read_text())
            kept["counts_every"] = kept["state"]["pace"]["every"] = 4
            path.write_text(json.dumps(kept))
        done = run(motley, mlp, three, run_dir, *flags, "--adapt", "batch", "--steps", steps)
        assert done.code == 0, done.stderr
    assert measured(run_dir)[:6] == list(range(6))
    # Until it decides anew, after another split.
    until = min([begins for begins, every in paces(run_dir) if begins > 6], default=30)
    seen = [step for step in measured(run_dir) if 8 <= step < until]
    assert seen == [step for step in range(8, until) if step % 4 == 0]
    repeated = run(motley, mlp, three, tmp_path / "repeated", "--decisions", run_dir / "decisions.jsonl", "--steps", 30)
    assert repeated.code == 0, repeated.stderr
    assert not measured(tmp_path / "repeated")
    for name, value in load_file(run_dir / "model.safetensors").items():
        assert torch.equal(value, load_file(tmp_path / "repeated/model.safetensors")[name]), name
