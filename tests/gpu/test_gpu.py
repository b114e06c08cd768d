"""What is to hold on a GPU, an item a test, as docs/gpu.md lists them. Each is a run of the commands."""

import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib

import numpy as np
import pytest

from conftest import BUILD, DIGITS, ROOT, TEXT
from gpu.conftest import GPUS

sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples")]

SGD = ["--optimizer", "sgd", "--lr", "0.05", "--momentum", "0.9"]


def run(motley, model, cluster, run_dir, *flags, data=DIGITS, batch=60, steps=20, code=0):
    done = motley("run", "-m", model, "-C", cluster, "--data", data, "--global-batch", batch, "--steps", steps,
                  "--run-dir", run_dir, *SGD, *flags, "--json", timeout=600)
    assert done.code == code, done.stdout + done.stderr
    return done.json if code == 0 else done


def store(environment, question):
    with sqlite3.connect(environment["MOTLEY_PROFILES"]) as profiles:
        return profiles.execute(question).fetchall()


def intervals(run_dir, rank):
    """Compute intervals of a rank's trace of its last steps: {step: [(begin, end)]}."""
    done = subprocess.run([BUILD / "motley", "trace", run_dir, "-o", pathlib.Path(run_dir) / "trace.json"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    events = json.loads((pathlib.Path(run_dir) / "trace.json").read_text())["traceEvents"]
    return [event for event in events if event["ph"] == "X" and event["pid"] == rank]


@pytest.mark.parametrize("example", ["mlp", "digits_cnn"])  # cuBLAS, cuDNN
def test_tf32_is_off_unless_asked(motley, export, environment, one_gpu, one_cpu, tmp_path, example):
    """1. TF32 off unless asked for, in cuBLAS and in cuDNN."""
    model = export(f"{example}.py:model")
    wanted = run(motley, model, one_cpu, tmp_path / "cpu", steps=10)["losses"]
    plain = run(motley, model, one_gpu, tmp_path / "plain", steps=10)["losses"]
    asked = run(motley, model, one_gpu, tmp_path / "tf32", "--tf32", steps=10)["losses"]
    # TF32 keeps 10 bits of a factor, 5e-4 of it; float32 leaves the order of sums.
    assert np.allclose(plain, wanted, rtol=2e-5)
    assert np.abs(np.array(asked) / np.array(wanted) - 1).max() > np.abs(np.array(plain) / np.array(wanted) - 1).max()
    assert json.loads((tmp_path / "tf32/job.json").read_text())["devices"][0]["tf32"]
    assert {torch.endswith("+tf32") for (torch,) in store(environment, "SELECT torch FROM op WHERE kind NOT LIKE 'cpu%'")} \
        == {True, False}


def test_a_profile_with_tf32_prices_no_run_without(motley, mlp, one_gpu, tmp_path):
    """1. A profile with TF32 prices no run without."""
    here = ["-m", mlp, "-C", one_gpu, "--global-batch", 60, "--profiles", tmp_path / "own.db"]
    assert motley("profile", *here, "--tf32").code == 0
    assert motley("plan", *here, "--tf32", "--profile", "never", "-o", tmp_path / "plan.json").code == 0
    assert motley("plan", *here, "--profile", "never").code == 2
    assert json.loads((tmp_path / "plan.json").read_text())["tf32"]


def test_scratch_memory_is_measured(motley, cnn, environment, one_gpu, tmp_path):
    """2. Workspaces are measured as scratch memory, and the predicted peak holds."""
    device = run(motley, cnn, one_gpu, tmp_path / "run")["devices"][0]
    (most,) = store(environment, "SELECT max(scratch_bytes) FROM op WHERE kind NOT LIKE 'cpu%' AND key LIKE '%convolution%'")[0]
    assert most > 0
    # cuBLAS keeps a workspace, which is in what is measured and in the framework's share of what is predicted.
    assert device["peak_bytes"] <= device["predicted_peak_bytes"] + (64 << 20)


def test_memory_beside_tensors_is_measured(motley, cnn, environment, one_gpu):
    """2. Context and allocator overhead are measured, and planning uses them."""
    done = motley("plan", "-m", cnn, "-C", one_gpu, "--global-batch", 60, "--json", timeout=600)
    assert done.code == 0, done.stderr
    (context,) = store(environment, "SELECT max(scratch_bytes) FROM op WHERE key = 'framework context'")[0]
    assert 100 << 20 < context < 4 << 30
    (memory,) = done.json["memory"].values()
    assert memory["framework_from"] == "measured there" and memory["framework_bytes"] >= context


def test_memory_of_the_whole_process_fits(motley, gpt, make_cluster, tmp_path):
    """2. A run that is said to fit a limit ends within it."""
    limited = make_cluster(("g", "cuda"), name="limited.toml")
    limited.write_text(limited.read_text().replace('kind = "cuda"', 'kind = "cuda"\n  memory = "1GiB"'))
    run(motley, gpt, limited, tmp_path / "run", "--seq", 64, data=TEXT, batch=16, steps=5)


def test_dropout(motley, gpt, environment, one_gpu, one_cpu, tmp_path):
    """3. Dropout draws what a CPU draws, and needs no memory beside its results."""
    flags = ["--seq", 64]
    theirs = run(motley, gpt, one_cpu, tmp_path / "cpu", *flags, data=TEXT, batch=16)["losses"]
    ours = run(motley, gpt, one_gpu, tmp_path / "gpu", *flags, data=TEXT, batch=16)["losses"]
    assert np.allclose(ours, theirs, rtol=1e-3)
    drawn = store(environment, "SELECT scratch_bytes FROM op WHERE kind NOT LIKE 'cpu%' AND key LIKE 'motley::dropout%'")
    assert drawn and max(bytes for (bytes,) in drawn) == 0


def test_kernels_of_ours_give_the_bits_of_cpus():
    """3. Every distribution in every type, and dropout, bit by bit."""
    wanted = "CudaKernels.*:CudaLibrary.ListsAndUsesDevices:-CudaKernels.WhatDoesNotStart*"  # that is for hosts without a GPU
    done = subprocess.run([BUILD / "run_torch_test", f"--gtest_filter={wanted}"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "SKIPPED" not in done.stdout, done.stdout + done.stderr


def test_waits_are_not_compute(motley, mlp, make_cluster, tmp_path):
    """4. Waits for other streams are not booked as compute."""
    slow = make_cluster(("g", "cuda"), ("c", "cpu"), link='bandwidth = "100Mbps"\nlatency = "20ms"')
    answer = run(motley, mlp, slow, tmp_path / "run", "--batch-split", "30,30")
    events = [event for event in intervals(tmp_path / "run", 0) if event["tid"] == 0]
    steps = 5  # --trace-steps
    computing = sum(event["dur"] for event in events) * 1e-6 / steps
    assert answer["step_s_median"] > 0.02
    assert computing < answer["step_s_median"] - 0.015


def test_tracing_is_in_the_step_and_cheap(motley, gpt, one_gpu, tmp_path):
    """5. Steps include what tracing costs, and that is little."""
    flags = ["--seq", 64]
    took = {}
    for turn in range(3):
        for steps in (0, 5):
            answer = run(motley, gpt, one_gpu, tmp_path / f"{turn}-{steps}", *flags, "--trace-steps", steps,
                         data=TEXT, batch=16, steps=60)
            took.setdefault(steps, []).append(answer["step_s_median"])
    # Not a stopwatch's limit: reading events within the step would cost a multiple.
    assert min(took[5]) < 1.5 * min(took[0])


def test_inputs_are_copied_from_pinned_memory(motley, cnn, one_gpu, one_cpu, tmp_path):
    """6. Inputs come by pinned, asynchronous copies, and are the right ones."""
    flags = ["--shuffle", 3]
    theirs = run(motley, cnn, one_cpu, tmp_path / "cpu", *flags, steps=40)["losses"]
    ours = run(motley, cnn, one_gpu, tmp_path / "gpu", *flags, steps=40)["losses"]
    assert np.allclose(ours, theirs, rtol=1e-3)


def test_mixed_exchanges_are_measured_with_their_tensors(motley, mlp, environment, make_cluster):
    """7. Exchanges of a GPU beside a CPU are measured with the tensors that they carry."""
    mixed = make_cluster(("g", "cuda"), ("c", "cpu"))
    done = motley("profile", "-m", mlp, "-C", mixed, "--global-batch", 60, timeout=600)
    assert done.code == 0, done.stderr
    assert ("gloo of gpus", 2) in store(environment, "SELECT DISTINCT backend, ranks FROM collective")


@pytest.mark.gpus(2)
def test_our_timeout_comes_before_nccls(motley, mlp, make_cluster, environment, tmp_path):
    """8. A peer that hangs is named after our timeout, before NCCL's own ends the process."""
    pair = make_cluster(("a", "cuda"), ("a2", "cuda"))
    pair.write_text('schema = "motley.cluster/1"\nname = "pair"\n[[node]]\nname = "a"\n'
                    '  [[node.device]]\n  kind = "cuda"\n  count = 2\n')
    words = [BUILD / "motley", "run", "-m", mlp, "-C", pair, "--data", DIGITS, "--global-batch", 60, "--steps", 10**6,
             "--run-dir", tmp_path / "run", "--timeout", 10, *SGD]
    job = subprocess.Popen([str(word) for word in words], env=environment, stderr=subprocess.PIPE, text=True)
    record = tmp_path / "run/status/rank-1"
    deadline = time.monotonic() + 300
    while not record.exists() or int.from_bytes(record.read_bytes()[8:16], "little") < 5:
        assert job.poll() is None and time.monotonic() < deadline
        time.sleep(0.2)
    peer = int.from_bytes(record.read_bytes()[:8], "little")
    os.kill(peer, signal.SIGSTOP)
    try:
        _, errors = job.communicate(timeout=90)
    finally:
        with contextlib.suppress(ProcessLookupError):  # `motley` has killed it
            os.kill(peer, signal.SIGKILL)
    assert job.returncode == 1 and "10 s" in errors and "run.timeout" in errors, errors


def test_two_ranks_on_one_gpu(motley, mlp, environment, make_cluster, one_gpu, tmp_path):
    """9. Two ranks on one GPU exchange through host memory."""
    twice = make_cluster(("a", "cuda"), ("b", "cuda"), name="twice.toml")  # each node's first device is the same
    alone = run(motley, mlp, one_gpu, tmp_path / "one")["losses"]
    both = run(motley, mlp, twice, tmp_path / "two", "--batch-split", "40,20")
    assert len(both["devices"]) == 2
    assert np.allclose(both["losses"], alone, rtol=1e-5)
    assert ("gloo of gpus",) in store(environment, "SELECT DISTINCT backend FROM collective")


def test_two_ranks_on_one_gpu_share_its_memory(motley, mlp, make_cluster):
    """9. Two ranks on one GPU have half of its memory each."""
    twice = make_cluster(("a", "cuda"), ("b", "cuda"), name="halves.toml")
    for memory, code in (("256MiB", 3), ("4GiB", 0)):  # halves of which hold no context, or one
        twice.write_text(twice.read_text().replace('kind = "cuda"', f'kind = "cuda"\n  memory = "{memory}"'))
        done = motley("plan", "-m", mlp, "-C", twice, "--global-batch", 60, "--batch-split", "40,20", timeout=600)
        assert done.code == code, done.stdout + done.stderr
        twice.write_text(twice.read_text().replace(f'\n  memory = "{memory}"', ""))


def test_a_gpu_with_cpu_cores_is_an_unequal_cluster(motley, cnn, make_cluster, tmp_path):
    """10. One GPU with CPU cores beside it is planned, trained, and equal to one device."""
    mixed = make_cluster(("g", "cuda"), ("c", "cpu"))
    planned = motley("plan", "-m", cnn, "-C", mixed, "--global-batch", 240, "--json", timeout=600)
    assert planned.code == 0, planned.stderr
    assert sum(planned.json["batch_split"].values()) == 240
    done = motley("verify", "-m", cnn, "-C", mixed, "--data", DIGITS, "--global-batch", 240, "--batch-split", "200,40",
                  "--steps", 5, "--run-dir", tmp_path / "run", *SGD, "--json", timeout=600)
    assert done.code == 0 and done.json["pass"], done.stdout + done.stderr


def train_family(motley, export, name, clusters, tmp_path):
    """Losses of a model of examples/families.py on each of the clusters."""
    import families

    _, inputs = getattr(families, name)()
    data = tmp_path / "data.npz"
    np.savez(data, **{f"x{i}": value.numpy() for i, value in enumerate(inputs)})
    model = export(f"families.py:{name}")
    return [run(motley, model, cluster, tmp_path / cluster.stem, data=data, batch=len(inputs[0]))["losses"] for cluster in clusters]


def test_bf16_autocast(motley, export, one_gpu, one_cpu, tmp_path):
    """11. A model under bf16 autocast trains as on a CPU."""
    ours, theirs = train_family(motley, export, "bf16", (one_gpu, one_cpu), tmp_path)
    assert np.allclose(ours, theirs, rtol=2e-2)  # bf16 keeps 8 bits
    assert ours[-1] < ours[0]


@pytest.mark.parametrize("name", [
    "mlp", "regression", "cnn", "group_norm", "label_smoothing", "gpt_tied", "gpt_dropout", "bert", "lstm", "gru", "vgg", "resnet",
    "vit", "llama", "fourier", "moe", "recommender"])
def test_families(motley, export, one_gpu, one_cpu, tmp_path, name):
    """14. The families of models train as on a CPU."""
    ours, theirs = train_family(motley, export, name, (one_gpu, one_cpu), tmp_path)
    assert np.allclose(ours, theirs, rtol=1e-3), (ours, theirs)


def test_bench_engine_on_the_gpu(environment, tmp_path):
    """12. bench-engine runs on the GPU, against eager and torch.compile."""
    done = subprocess.run([sys.executable, ROOT / "bench/engine.py", "--device", "cuda", "--case", "mlp", "--seconds", "1"],
                          capture_output=True, text=True, timeout=600, env=dict(environment, MOTLEY_BUILD=str(BUILD)))
    assert done.returncode == 0, done.stderr
    rows = json.loads((BUILD / "bench/engine-cuda.json").read_text())["rows"]
    assert {row["case"] for row in rows} == {"mlp", "mlp fused optimizer", "mlp compiled"}


def test_probe_finds_the_gpus(motley, tmp_path):
    """13. GPUs by model, UUID and memory."""
    done = motley("probe", "-o", tmp_path / "here.toml", "--json")
    assert done.code == 0, done.stderr
    found = [device for device in tomllib.loads((tmp_path / "here.toml").read_text())["node"][0]["device"]
             if device["kind"] == "cuda"]
    assert {device["uuid"] for device in found} == {gpu["uuid"] for gpu in GPUS}
    assert all(device["model"] and device["memory"] for device in found)


@pytest.mark.gpus(2)
def test_probe_finds_peer_links(motley, tmp_path):
    """13. How GPUs reach each other."""
    done = motley("probe", "-o", tmp_path / "here.toml", "--json")
    assert tomllib.loads((tmp_path / "here.toml").read_text())["node"][0]["peers"] in ("nvlink", "bus", "host")
    assert any("cuda: devices reach each other" in note for note in done.json["notes"])
