"""motley.torch: a script's own loop over unequal ranks gives what one device would."""

import json
import os
import pathlib
import statistics
import subprocess
import sys

import pytest
import ranks
from conftest import BUILD, EXAMPLES, ROOT, SLOW

WORLD = 3
LIMIT = 1e-5


def start(names, **environment):
    return ranks.start(pathlib.Path(__file__).with_name("torch_cases.py"), names, WORLD, **environment)


def rows_of(*names, **environment):
    ends, rows = start(names, **environment)
    assert [code for code, _ in ends] == [0] * WORLD, "\n".join(errors[-1500:] for _, errors in ends)
    return rows


@pytest.fixture(scope="module")
def results():
    return rows_of("exchange", "mlp", "static", "workers", "cnn", "gpt", "accumulated", "norms", "sharded", "unused", "evaluates", "several")


@pytest.mark.parametrize("case", ["mlp", "static", "workers", "cnn", "gpt", "accumulated", "norms", "sharded", "unused"])
def test_it_is_what_one_device_gives(results, case):
    assert results[case]["max_param_diff"] <= LIMIT


def test_several_models_and_passes_are_what_one_device_gives(results):
    found = {name: apart for name, apart in results["several"].items() if name != "case"}
    assert len(found) == 7 and max(found.values()) <= LIMIT, found
    assert found["doubles"] < 1e-12


def test_batches_are_shared_as_asked(results):
    # 24 samples as 5:2:1 and as 1:4:2, in which 3.43, 13.71 and 6.86 are whole; the fifth batch of an epoch has the last 18 of 114.
    assert [ranks[:4] for ranks in results["mlp"]["samples"]] == [[15] * 4, [6] * 4, [3] * 4]
    assert [ranks[4] for ranks in results["mlp"]["samples"]] == [11, 5, 2]
    assert [ranks[0] for ranks in results["workers"]["samples"]] == [3, 14, 7]
    assert results["mlp"]["unchanged"] > 0.1  # they did train


def test_ranks_have_the_same_bits_of_a_sum(results):
    row = results["exchange"]
    assert row["equal"] and row["refused"] and row["apart"] < 1e-15


def test_a_rank_that_ends_is_named():
    ends, _ = start(["ends"])
    assert ends[2][0] == 3
    for code, errors in ends[:2]:
        assert code != 0 and "rank 2 has ended" in errors, errors[-1500:]


def test_evaluation_is_each_rank_s_own(results):
    row = results["evaluates"]
    assert row["outputs"] == [4, 10] and row["copied"]
    assert row["apart"] > 1e-3  # a model that was saved whole trains by PyTorch's batch norm


def test_parameters_without_a_part_are_named(results):
    assert results["unused"]["said"] == (
        "motley.torch.DDP: parameters without a part in the last step's loss: other.weight, other.bias; its gradients were not exchanged. "
        "Freeze them (requires_grad_(False)), or give DDP(model, find_unused_parameters=True)"
    )


def step_ms(samples, step):
    """By the times that the ranks of `learns` have."""
    times = [2 if step >= 30 else 1, 2, 4]
    return max(ranks[step] * each for ranks, each in zip(samples, times, strict=True))


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """Rows, and the run directory of the first one's training and all after it."""
    folder = tmp_path_factory.mktemp("learned")
    return rows_of("learns", MOTLEY_RUN_DIR=str(folder)), folder


@pytest.fixture(scope="module")
def others(learned):
    return rows_of("ahead", "refuses") | learned[0]


@pytest.mark.parametrize("case", ["learns", "ahead"])
def test_shares_settle_and_follow_a_rank_that_slows_down(others, case):
    row = others[case]
    samples, ahead = row["samples"], row["ahead"]
    assert all(sum(ranks[step] for ranks in samples) == 24 for step in range(70))
    assert [ranks[: 2 + ahead] for ranks in samples] == [[8] * (2 + ahead)] * 3
    # Even: 32 ms. Best: 14, 7, 3 or the like in 14 ms; then (2, 2, 4 ms) 10, 9, 5 in 20 ms. A sample more or less is 2 to 4 ms.
    assert statistics.median(step_ms(samples, step) for step in range(20 + ahead, 30)) <= 20
    assert statistics.median(step_ms(samples, step) for step in range(50 + ahead, 70)) <= 26


def test_faults_say_what_to_do(others):
    found = others["refuses"]
    wanted = {
        "unequal": "micro-batches that average over [8.0, 4.0, 8.0] are accumulated",
        "sum": "the loss is a sum over this rank's samples; wanted their mean",
        "iterable": "the data set is iterable",
        "batches": "the loader's batch sampler is an own one (Mine)",
        "order": "the loader's sampler is a RandomSampler; wanted torch.utils.data.DistributedSampler",
        "loader": "found a list, wanted a torch.utils.data.DataLoader",
        "differ": "batch_size differs between ranks: [8, 9, 10]",
        "memory": "a global batch of 24 samples; the ranks hold at most [7, 7, 7]",
        "shares": "shares [1, 2]; wanted 3 numbers above 0, one a rank",
        "hook": "another one does not go with unequal batches",
        "join": "join() is for ranks with other numbers of steps",
        "mixed": "mixed_precision does not go with unequal batches; use torch.autocast",
        "unlike": "a step trains on batches of several loaders, which the ranks share as 12:8:4 and 5:3:1: their losses would weigh unlike",
        "weight": "weight='words'; wanted 'samples', 'tokens' or a function of the batch",
    }
    assert {name: text for name, text in wanted.items() if text not in found[name]} == {}, found


def report(folder, *flags):
    done = subprocess.run([str(BUILD / "motley"), "report", str(folder), *flags], capture_output=True, text=True, check=True)
    return json.loads(done.stdout) if "--json" in flags else done.stdout


def test_a_run_directory_says_what_the_ranks_took(learned, tmp_path):
    rows, folder = learned
    samples = rows["learns"]["samples"]
    steps = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [each["step"] for each in steps] == list(range(70))
    assert [each["samples"] for each in steps] == [list(each) for each in zip(*samples, strict=True)]
    assert sum(each["step_s"] for each in steps) >= 0.9 * sum(max(each["compute_s"], default=0) for each in steps)
    assert sum(not each["compute_s"] for each in steps) == 1  # the first step, before which nothing is known
    # Ranks of 1, 2 and 4 ms a sample, and what else a step takes.
    assert [steps[5]["compute_s"][rank] >= 0.001 * 2**rank * steps[5]["samples"][rank] for rank in range(WORLD)] == [True] * WORLD
    found = report(folder, "--json", "-o", str(tmp_path / "page.html"))
    assert found["state"] == "finished" and found["verdict"].startswith("Finished: 70 steps on 3 devices, ")
    first, *changes = found["decisions"]
    assert first["why"] == "the batch split 8:8:8: even, until the ranks' times are known"
    for each in changes:
        split = [part["samples"] for part in each["action"]["shares"]]
        assert split == steps[each["begins"]]["samples"] != steps[each["begins"] - 1]["samples"]
    assert changes and min(changes[0][key] for key in ("expected_s", "came_s", "before_s")) > 0
    assert [each["samples"] for each in found["samples"]] == steps[-1]["samples"]
    assert len(found["timelines"][0]["devices"]) == WORLD
    assert "A step, device by device" in (tmp_path / "page.html").read_text()
    assert "computes      waits  exchanges\n" in report(folder)


def test_times_that_are_told_late_are_those_of_their_steps(tmp_path):
    row = rows_of("late", MOTLEY_RUN_DIR=str(tmp_path))["late"]
    steps = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [each["samples"] for each in steps] == [list(each) for each in zip(*row["samples"], strict=True)]
    assert [len(each["compute_s"]) for each in steps] == [0] + [WORLD] * 68 + [0]
    for each in steps[1:-1]:
        least = [0.001 * 2**rank * each["samples"][rank] for rank in range(WORLD)]
        assert all(took >= wanted for took, wanted in zip(each["compute_s"], least, strict=True)), each
    assert [each["loss"] is None for each in steps] == [False] * 69 + [True]
    assert statistics.median(step_ms(row["samples"], step) for step in range(20, 30)) <= 20


def test_a_run_directory_has_the_losses_of_one_device(tmp_path):
    rows = rows_of("accumulated", MOTLEY_RUN_DIR=str(tmp_path / "run"))
    assert report(tmp_path / "run", "--json")["losses"] == pytest.approx(rows["accumulated"]["losses"], abs=1e-5)
    # A script that is started again goes on where its log ends.
    rows_of("accumulated", MOTLEY_RUN_DIR=str(tmp_path / "run"))
    assert report(tmp_path / "run", "--json")["steps"] == 20


def test_a_rank_without_memory_says_what_fits(tmp_path):
    ends, _ = start(["memory"], MOTLEY_RUN_DIR=str(tmp_path))
    assert report(tmp_path, "--json")["state"] == "failed"
    assert ends[1][0] != 0
    assert "rank 1 ran out of memory with 8 samples; 8 fitted." in ends[1][1]


def verify(script, *flags):
    return subprocess.run(
        [str(BUILD / "motley"), "verify", *flags, "--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)],
        capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python"), "MOTLEY_PYTHON": sys.executable, "GLOO_SOCKET_IFNAME": "lo"},
    )  # fmt: skip


def test_verify_compares_gradients_under_two_splits():
    done = verify(EXAMPLES / "ddp_digits.py", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["pass"] and found["max_grad_diff"] <= found["grad_limit"] == 1e-4
    # Two ranks of 32 samples each: even, and as 2 to 1.
    assert (found["splits"], found["tensors"]) == ([[32, 32], [43, 21]], 6)


if SLOW:

    def test_verify_finds_a_wrong_weight(tmp_path):
        script = tmp_path / "train.py"
        text = (EXAMPLES / "ddp_digits.py").read_text().replace("DDP(model)", "DDP(model, weight=lambda batch: 1)")
        script.write_text(text.replace("pathlib.Path(__file__).resolve().parent", repr(str(EXAMPLES)) + " / pathlib.Path('')"))
        done = verify(script)
        assert done.returncode == 5, done.stderr
        assert done.stdout.startswith("FAIL: 6 gradients of the first step under 43:21 and 32:32 samples differ by ")


def test_gradients_are_compared_by_their_norms():
    import torch
    from motley.torch.verify import compare

    reference = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([1e-6, 0.0])}
    # |(0.3, 0.4)| / 5 = 0.1; b is noise beside a, so its 1e-6 is compared with a thousandth of 5.
    found = compare({"a": torch.tensor([3.3, 4.4]), "b": torch.zeros(2)}, reference)
    assert found == {"a": pytest.approx((0.5, 0.1)), "b": pytest.approx((1e-6, 1e-6 / 5e-3))}
    never = (float("inf"), float("inf"))
    assert compare({"a": torch.tensor([float("nan"), 0.0]), "b": reference["b"]}, reference) == {"a": never, "b": (0, 0)}
    assert compare({"a": reference["a"]}, reference) == {"a": (0, 0), "b": never}


def test_gradients_that_are_zero_but_for_rounding_are_no_difference(tmp_path):
    """A bias before a batch norm has none; its sums over 460,800 places cancel out but for rounding, those of the weight nearly."""
    script = tmp_path / "train.py"
    script.write_text("""
import torch, torch.distributed as dist, motley.torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
torch.manual_seed(0)
model = motley.torch.DDP(nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)))
data = TensorDataset(torch.randn(32, 1, 122, 122), torch.randint(0, 3, (32,)))
loader = motley.torch.share(DataLoader(data, batch_size=16, sampler=DistributedSampler(data)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
""")
    done = verify(script, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert "0.bias" in found["rounding"] and set(found["rounding"]) <= {"0.bias", "0.weight"}
    assert found["tensors"] == 6 - len(found["rounding"]) and found["max_grad_diff"] < 1e-4


def test_verify_says_why_it_cannot():
    def ask(*words):
        return subprocess.run([str(BUILD / "motley"), "verify", *words], capture_output=True, text=True, check=False,
                              env=os.environ | {"PYTHONPATH": str(ROOT / "python"), "MOTLEY_PYTHON": sys.executable})  # fmt: skip

    done = ask("--json", "--", "no-such-program")
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, "verify.command")
    done = ask("--", "true")
    assert (done.returncode, done.stderr) == (1, "motley: true: took no optimizer step of a model in motley.torch.DDP [verify.no-step]\n")


def test_another_pytorch_is_refused():
    from motley.torch.refusals import check_version

    check_version("2.11.0+cu130")
    with pytest.raises(ImportError, match="found PyTorch 2.16.1, wanted 2.11 to 2.15"):
        check_version("2.16.1")


def test_without_a_process_group():
    code = "import motley.torch, torch\ntry: motley.torch.DDP(torch.nn.Linear(1, 1))\nexcept RuntimeError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "python")}, check=True)
    assert "call torch.distributed.init_process_group first" in done.stdout


def test_the_library_needs_no_torch():
    code = (
        "import sys, motley.library as library\n"
        "print(library.share_batch(10, [8, 3, 1], [5, 9, 9]), 'torch' in sys.modules)\n"
        "try: library.SplitPolicy([4], 'motly')\nexcept library.LibraryError as error: print(error.code, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT / "python"), "MOTLEY_PROGRAM": str(BUILD / "motley")})  # fmt: skip
    assert done.stdout.splitlines() == [
        "[5, 4, 1] False",
        "adapt.policy unknown policy 'motly', wanted one of motley even hetseq adaptdl lb-bsp cannikin, did you mean 'motley'?",
    ]


def test_a_split_shortens_what_devices_take_and_no_exchange():
    """Twice as slow: 32:16 in place of 24:24 saves 80 of 240 ms, which of steps that take 400 are a fifth."""
    code = """
import motley.library as library
policy = library.SplitPolicy([48, 48])
for step in range(1, 9):
    for choice in policy.observe(step, 0.4 * step, [24, 24], [0.12, 0.24], 0.4):
        print(choice["action"]["do"], choice["expected_s"], choice["why"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env=os.environ | {"PYTHONPATH": str(ROOT / "python"), "MOTLEY_PROGRAM": str(BUILD / "motley")})  # fmt: skip
    do, expected, why = done.stdout.splitlines()[0].split(" ", 2)
    assert do == "split" and abs(float(expected) - 0.32) < 0.002, done.stdout
    assert "20.0 % shorter" in why, why


def test_a_script_ends_when_gloo_s_threads_are_idle():
    script = """
import ctypes, json, threading, time
from motley.torch import ending

def spin(name, seconds):
    ctypes.CDLL(None).prctl(15, name, 0, 0, 0)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ctypes.CDLL(None).getpid()  # and no interpreter

def waited(name, seconds):
    thread = threading.Thread(target=spin, args=(name, seconds))
    thread.start()
    time.sleep(0.05)
    begin = time.monotonic()
    is_idle = ending.await_idle()
    took = time.monotonic() - begin
    thread.join()
    return is_idle, took

print(json.dumps([waited(b"pt_gloo_runloop", 0.5), waited(b"another", 1.5), waited(b"pt_gloo_runloop", 3)]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT / "python")}, timeout=60)
    assert done.returncode == 0, done.stderr
    (first, first_s), (other, other_s), (late, late_s) = json.loads(done.stdout)
    assert first and first_s > 0.3
    assert other and other_s < 1
    assert not late and 2 <= late_s < 2.9  # it is not waited for for ever
