"""motley.torch: a script's own loop over unequal ranks gives what one device would. Its parts alone: python/tests/test_torch_parts.py."""

import functools
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys

import pytest
import ranks
import warm
from conftest import BUILD, EXAMPLES, ROOT, sampled

WORLD = 3
LIMIT = 1e-5
SCRIPT = pathlib.Path(__file__).with_name("torch_cases.py")


def start(*names, **environment):
    return ranks.start(SCRIPT, names, WORLD, ranks.Fresh if warm.IS_REAL else ranks.start_warm, **environment)


def rows_of(*names, **environment):
    ends, rows = start(*names, **environment)
    assert [code for code, _ in ends] == [0] * WORLD, "\n".join(errors[-1500:] for _, errors in ends)
    return rows


@functools.cache
def row_of(case):
    """By ranks of its own: a case that fails fails alone."""
    return rows_of(case)[case]


@pytest.mark.parametrize("case", ["mlp", "static", "workers", "cnn", "gpt", "accumulated", "norms", "sharded", "unused"])
def test_it_is_what_one_device_gives(case):
    row = row_of(case)
    assert row["max_param_diff"] <= LIMIT
    assert row.get("alike", True)  # all ranks have the same bits, of statistics, too


def test_several_models_and_passes_are_what_one_device_gives():
    found = {name: apart for name, apart in row_of("several").items() if name != "case"}
    assert len(found) == 8 and max(found.values()) <= LIMIT, found
    assert found["doubles"] < 1e-12


def test_batches_are_shared_as_asked():
    # 24 samples as 5:2:1 and as 1:4:2, in which 3.43, 13.71 and 6.86 are whole; the fifth batch of an epoch has the last 18 of 114.
    mlp = row_of("mlp")
    assert [ranks[:4] for ranks in mlp["samples"]] == [[15] * 4, [6] * 4, [3] * 4]
    assert [ranks[4] for ranks in mlp["samples"]] == [11, 5, 2]
    assert [ranks[0] for ranks in row_of("workers")["samples"]] == [3, 14, 7]
    assert mlp["unchanged"] > 0.1  # they did train


def test_ranks_have_the_same_bits_of_a_sum():
    row = row_of("exchange")
    assert row["equal"] and row["refused"] and row["apart"] < 1e-15
    assert row["named"]  # gloo's threads have the name that ending.py looks for


def test_a_rank_that_ends_is_named():
    ends, _ = start("ends")
    assert ends[2][0] == 3
    for code, errors in ends[:2]:
        assert code != 0 and "rank 2 has ended" in errors, errors[-1500:]


def test_evaluation_is_each_rank_s_own():
    row = row_of("evaluates")
    assert row["outputs"] == [4, 10] and row["copied"]
    assert row["sharing"] == WORLD  # of this host's memory
    assert row["apart"] > 1e-3  # a model that was saved whole trains by PyTorch's batch norm


def test_the_end_of_a_script_waits_for_threads():
    assert "waited" in rows_of("idle")


def test_parameters_without_a_part_are_named():
    assert row_of("unused")["said"] == (
        "motley.torch.DDP: parameters without a part in the last step's loss: other.weight, other.bias; its gradients were not exchanged. "
        "Freeze them (requires_grad_(False)), or give DDP(model, find_unused_parameters=True)"
    )


def ms_a_sample(step):
    """Of the ranks of `learns`."""
    return [2 if step >= 30 else 1, 2, 4]


def step_ms(samples, step):
    """What the slowest of them takes."""
    return max(ranks[step] * each for ranks, each in zip(samples, ms_a_sample(step), strict=True))


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """The row of `learns`, and its run directory."""
    folder = tmp_path_factory.mktemp("learned")
    return rows_of("learns", MOTLEY_RUN_DIR=str(folder))["learns"], folder


def check_shares(row, settled_ms, followed_ms):
    samples, ahead = row["samples"], row["ahead"]
    assert all(sum(ranks[step] for ranks in samples) == 24 for step in range(70))
    assert [ranks[: 2 + ahead] for ranks in samples] == [[8] * (2 + ahead)] * 3
    assert statistics.median(step_ms(samples, step) for step in range(20 + ahead, 30)) <= settled_ms, samples
    assert statistics.median(step_ms(samples, step) for step in range(50 + ahead, 70)) <= followed_ms, samples


@pytest.mark.parametrize("case", ["learns", "ahead", "late"])
def test_shares_settle_and_follow_a_rank_that_slows_down(learned, case):
    # Even: 32 ms. Best: 14:7:3 in 14 ms; then, with 2, 2 and 4 ms a sample, 10:10:4 or the like in 20 ms.
    check_shares(learned[0] if case == "learns" else row_of(case), 14, 20)


def test_shares_heed_what_memory_is_found_to_hold():
    # 10 of 24 samples for the first rank: of the other 14 the second takes 9 or 10, the third 5 or 4, in 20 ms.
    row = row_of("limited")
    assert max(row["samples"][0]) == 10
    check_shares(row, 20, 20)


@pytest.mark.timed
def test_shares_follow_the_clock():
    # A sample more or less of a rank is 2 to 4 ms: noise of so much is none of theirs.
    check_shares(row_of("learns by the clock"), 20, 26)


def test_faults_say_what_to_do():
    found = row_of("refuses")
    wanted = {
        "iterable": "the data set is iterable",
        "batches": "the loader makes no batches (batch_size=None)",
        "order": "the loader's sampler is a RandomSampler, so every rank draws all samples; wanted torch.utils.data.DistributedSampler",
        "loader": "found a list, wanted a torch.utils.data.DataLoader",
        "others": "the sampler is for 2 ranks; there are 3",
        "differ": "batch_size differs between ranks: [8, 9, 10]",
        "memory": "a global batch of 24 samples; the ranks hold at most [7, 7, 7]",
        "none": "a global batch of 24 samples; the ranks hold at most [0, 99, 99]: fewer than 1",
        "shares": "shares [1, 2]; wanted 3 numbers above 0, one a rank",
        "no share": "shares [1, 0, 2]; wanted 3 numbers above 0, one a rank",
        "both": "give shares or plan, not both",
        "other plan": "the plan is for 2 devices; there are 3 ranks",
        "stages": "the plan splits more than the batch, which a script's own loop cannot; make one with --planner split",
        "loader's weight": "the weight of a plain loader's batches is the model's: DDP(model, weight=...)",
        "join": "join() is for ranks with other numbers of steps",
        "weight": "weight='words'; wanted 'samples', 'tokens', 'sum' or a function of the batch",
        "masked": "0.0",
        "norm": "expected 2D or 3D input (got 1D input)",
        "frame": "8193 numbers at once; ranks exchange at most 8192",
    }
    assert {name: found.get(name) for name, text in wanted.items() if text not in found.get(name, "")} == {}
    assert found.keys() == wanted.keys() | {"case"}


def report(folder, *flags):
    done = subprocess.run([str(BUILD / "motley"), "report", str(folder), *flags], capture_output=True, text=True, check=True)
    return json.loads(done.stdout) if "--json" in flags else done.stdout


def lines_of(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def told_seconds(step):
    """Of the ranks, in a line of a log of `learns`: 1, 2 and 4 ms a sample."""
    return pytest.approx([n * each / 1000 for n, each in zip(step["samples"], ms_a_sample(step["step"]), strict=True)])


def test_a_run_directory_says_what_the_ranks_took(learned, tmp_path):
    row, folder = learned
    steps = lines_of(folder)
    assert [each["step"] for each in steps] == list(range(70))
    assert [each["samples"] for each in steps] == [list(each) for each in zip(*row["samples"], strict=True)]
    # Before the first step nothing is known, and a rank has evaluated before step 40. Each takes what its slowest rank does, and 2 ms of exchange.
    assert [each["compute_s"] for each in steps] == [[] if each["step"] in (0, 40) else told_seconds(each) for each in steps]
    assert [each["step_s"] for each in steps] == pytest.approx([(step_ms(row["samples"], step) + 2) / 1000 for step in range(70)])
    found = report(folder, "--json", "-o", str(tmp_path / "page.html"))
    assert found["state"] == "finished" and found["verdict"].startswith("Finished: 70 steps on 3 devices, ")
    first, *changes = found["decisions"]
    assert first["why"] == "the batch split 8:8:8: even, until the ranks' times are known"
    for each in changes:
        split = [part["samples"] for part in each["action"]["shares"]]
        assert split == steps[each["begins"]]["samples"] != steps[each["begins"] - 1]["samples"]
    assert row["logged"] == [f"from step {each['begins']} on {':'.join(map(str, steps[each['begins']]['samples']))} samples: {each['why']}" for each in changes]
    host = socket.gethostname().split(".")[0]
    assert json.loads((folder / "script.json").read_text())["devices"] == [f"{host}:{rank}" for rank in range(WORLD)]
    assert changes and changes[0]["before_s"] == pytest.approx(0.034) and min(changes[0]["expected_s"], changes[0]["came_s"]) > 0
    assert [each["samples"] for each in found["samples"]] == steps[-1]["samples"]
    assert len(found["timelines"][0]["devices"]) == WORLD
    assert "A step, device by device" in (tmp_path / "page.html").read_text()
    assert "computes      waits  exchanges\n" in report(folder)


def test_times_that_are_told_late_are_those_of_their_steps(tmp_path):
    row = rows_of("late", MOTLEY_RUN_DIR=str(tmp_path))["late"]
    steps = lines_of(tmp_path)
    assert [each["samples"] for each in steps] == [list(each) for each in zip(*row["samples"], strict=True)]
    assert [each["compute_s"] for each in steps] == [[] if each["step"] in (0, 40, 69) else told_seconds(each) for each in steps]
    assert [each["loss"] is None for each in steps] == [False] * 69 + [True]


def test_a_run_directory_has_the_losses_of_one_device(tmp_path):
    rows = rows_of("accumulated", MOTLEY_RUN_DIR=str(tmp_path / "run"))
    assert report(tmp_path / "run", "--json")["losses"] == pytest.approx(rows["accumulated"]["losses"], abs=1e-5)
    # A script that is started again goes on where its log ends.
    rows_of("accumulated", MOTLEY_RUN_DIR=str(tmp_path / "run"))
    assert report(tmp_path / "run", "--json")["steps"] == 20


def test_a_rank_without_memory_says_what_fits(tmp_path):
    ends, _ = start("memory", MOTLEY_RUN_DIR=str(tmp_path))
    assert report(tmp_path, "--json")["state"] == "failed"
    assert ends[1][0] != 0
    assert "rank 1 ran out of memory with 8 samples; 8 fitted." in ends[1][1]


def verify(*words):
    return subprocess.run(
        [str(BUILD / "motley"), "verify", *map(str, words)], capture_output=True, text=True, timeout=600,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python"), "MOTLEY_PYTHON": warm.python(), "GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip


def digits(tmp_path, found, wanted):
    """The example with another line."""
    text = (EXAMPLES / "ddp_digits.py").read_text()
    assert found in text
    script = tmp_path / "train.py"
    script.write_text(text.replace(found, wanted).replace("pathlib.Path(__file__).resolve().parent", f"pathlib.Path({str(EXAMPLES)!r})"))
    return script


def test_verify_compares_gradients_under_two_splits(tmp_path):
    # PyTorch's own torchrun, which starts any program. Each start draws other weights.
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--no-python", warm.python()]
    done = verify("--json", "--", *torchrun, digits(tmp_path, "torch.manual_seed(0)", "torch.seed()"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["pass"] and found["max_grad_diff"] <= found["grad_limit"] == 1e-4
    # Two ranks of 32 samples each: even, and as 2 to 1.
    assert (found["splits"], found["tensors"], found["against"]) == ([[32, 32], [43, 21]], 8, "one device") and found["steps"] >= 4


def test_verify_finds_a_wrong_weight(tmp_path):
    done = verify("--", *warm.torchrun(2), digits(tmp_path, "DDP(model)", "DDP(model, weight=lambda batch: 1)"))
    assert done.returncode == 5, done.stderr
    assert done.stdout.startswith("FAIL: 8 tensors of ") and "under 43:21 and 32:32 samples differ from one device's by " in done.stdout
    assert "it looks like a loss that depends on which samples" in done.stdout


def test_gradients_that_are_zero_but_for_rounding_are_no_difference(tmp_path):
    """A bias before a batch norm has none; its sums over 460,800 places cancel out but for rounding, those of the weight nearly."""
    script = tmp_path / "train.py"
    script.write_text("""
import torch, torch.distributed as dist, motley.torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
torch.manual_seed(0)
first = motley.torch.DDP(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()))
second = motley.torch.DDP(nn.Linear(16, 3))
data = TensorDataset(torch.randn(32, 1, 122, 122), torch.randint(0, 3, (32,)))
loader = motley.torch.share(DataLoader(data, batch_size=16, sampler=DistributedSampler(data)))
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for x, y in loader:
    nn.functional.cross_entropy(second(first(x)), y).backward()
    optimizer.step()
""")
    done = verify("--json", "--", *warm.torchrun(2), script)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert "0: 0.bias" in found["rounding"] and set(found["rounding"]) <= {"0: 0.bias", "0: 0.weight"}
    assert found["max_grad_diff"] < 1e-4


def test_verify_says_why_it_cannot():
    done = verify("--json", "--", "no-such-program")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "verify.command")
    done = verify("--", "true")
    assert (done.returncode, done.stderr) == (1, "motley: true: took no optimizer step of a model in motley.torch.DDP [verify.no-step]\n")


def python(code):
    """What an interpreter of its own prints."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "python"), "MOTLEY_PROGRAM": str(BUILD / "motley")}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment).stdout.splitlines()


def test_the_library_needs_no_torch():
    assert python(
        "import sys, motley.library as library\n"
        "print(library.share_batch(10, [8, 3, 1], [5, 9, 9]), 'torch' in sys.modules)\n"
        "try: library.SplitPolicy([4], 'motly')\nexcept library.LibraryError as error: print(error.code, error)"
    ) == [
        "[5, 4, 1] False",
        "adapt.policy unknown policy 'motly', wanted one of motley even, did you mean 'motley'?",
    ]


def test_a_split_shortens_what_devices_take_and_no_exchange():
    """Twice as slow: 32:16 in place of 24:24 saves 80 of 240 ms, which of steps that take 400 are a fifth."""
    said = python("""
import motley.library as library
policy = library.SplitPolicy([48, 48])
for step in range(1, 9):
    for choice in policy.observe(step, 0.4 * step, [24, 24], [0.12, 0.24], 0.4):
        print(choice["action"]["do"], choice["expected_s"], choice["why"])
""")
    do, expected, why = said[0].split(" ", 2)
    assert do == "split" and abs(float(expected) - 0.32) < 0.002, said
    assert "20.0 % shorter" in why, why


WRONGS = {
    "unweighed": "backward.weights_of = lambda counts, factors, samples: [1.0] * len(counts)",
    "weighed by samples": "backward.said_of = lambda term: (float(session.session_of().samples[session.session_of().rank]), 1.0)",
    "weighed by the batch before": "said, last = backward.said_of, [(5.0, 1.0)]; backward.said_of = lambda term: last.append(said(term)) or last[-2]",
    "exchanged twice": "end = session.Session.end_backward\ndef twice(self):\n    end(self)\n    for each in self.parameters():\n        each.grad.mul_(1 + self.rank + each.grad.abs().mean())\nsession.Session.end_backward = twice",
    "statistics of a rank": "import contextlib; norm.Norms.made_global = norm.Norms.within = lambda *_: contextlib.nullcontext()",
    "statistics that owe nothing": "sum_now = session.Session.sum_now; session.Session.sum_now = lambda self, x, what: x if 'derived' in what else sum_now(self, x, what)",
    "nothing of a rank without targets": "backward.Pass.clear = lambda self, gradients, i: tuple(None if each is None else each * 0 + (self.factors[i] == 0) for each in gradients) if self.is_ours and self.factors[i] == 0 else None",
    "samples trained on twice": "part = loaders.SharedBatches.__iter__\ndef shifted(self):\n    for each in part(self):\n        yield [max(0, i - self.session.rank) for i in each]\nloaders.SharedBatches.__iter__ = shifted",
}


@pytest.mark.parametrize("wrong", sampled([None, *WRONGS], 3))
def test_verify_finds_what_was_wrong(tmp_path, wrong):
    """Each fault that motley.torch had, put back into a script that is right without it."""
    script = tmp_path / "train.py"
    script.write_text(f"""
import torch, torch.distributed as dist, motley.torch
from motley.torch import backward, loaders, norm, session
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
{WRONGS.get(wrong, "")}
dist.init_process_group("gloo")
torch.manual_seed(0)
y = torch.randint(0, 3, (30,))
y[torch.rand(30) < 0.4] = -100
data = TensorDataset(torch.randn(30, 6), y)
model = motley.torch.DDP(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3)))
loader = motley.torch.share(DataLoader(data, batch_size=4, sampler=DistributedSampler(data)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for step, (x, y) in enumerate(loader):
        nn.functional.cross_entropy(model(x), y).backward()
        if step % 2:
            optimizer.step()
            optimizer.zero_grad()
""")
    done = verify("--json", "--", *warm.torchrun(2), script)
    assert done.returncode == (5 if wrong else 0), done.stdout + done.stderr
