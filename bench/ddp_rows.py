"""Two equal local workers of Motley against PyTorch DDP over Gloo, one thread each.

The same models, global batch and optimizer; whole runs of both in turns, so that whatever else the
machine does hits both; medians over all steps but each run's first ones. Batch norm uses local
statistics in both. Used by engine.py; alone it prints its rows.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
DIGITS = ROOT / "examples/data/digits.npz"
TEXT = ROOT / "examples/data/devils_dictionary.bin"

CASES = {
    "mlp": dict(function="mlp.py:model", batch=128, data=DIGITS, flags=[]),
    "cnn": dict(function="digits_cnn.py:model", batch=64, data=DIGITS, flags=[]),
    "gpt": dict(function="char_gpt.py:model", batch=16, data=TEXT, flags=["--seq", "64"]),
}
RANKS = 2
STEPS, WARM_UP, ROUNDS = 60, 10, 3

CLUSTER = """schema = "motley.cluster/1"
name = "pair"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
  count = 2
  threads = 1
"""

# One rank of PyTorch's own data-parallel loop; the arguments are a JSON object.
DDP = """
import json, sys, time
import torch, torch.distributed as dist
case = json.loads(sys.argv[1])
sys.path.insert(0, case["examples"])
from reference import batch_of, load_arrays, load_model, load_tokens, loss_of
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + case["store"], rank=case["rank"], world_size=case["ranks"])
module, inputs = load_model(case["function"])
data = load_tokens(case["data"], "u16", 64) if case["data"].endswith(".bin") else \\
    load_arrays(case["data"], module, len(inputs))
model = torch.nn.parallel.DistributedDataParallel(module)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
share = case["batch"] // case["ranks"]
seconds = []
for step in range(case["steps"]):
    start = time.perf_counter()
    batch = [x[case["rank"] * share : (case["rank"] + 1) * share] for x in batch_of(data, step, case["batch"])]
    optimizer.zero_grad(set_to_none=True)
    loss = loss_of(model(*batch))
    loss.backward()
    optimizer.step()
    loss.item()
    seconds.append(time.perf_counter() - start)
if case["rank"] == 0:
    print(json.dumps(seconds))
dist.barrier()  # who leaves while another still talks takes it down
dist.destroy_process_group()
"""


def refuse_failure(who, code, errors):
    """Ends the benchmark with what a failed program said last."""
    if code:
        last = "\n  ".join(errors.strip().splitlines()[-15:]) or "nothing on stderr"
        raise SystemExit(f"{who} ended with status {code}:\n  {last}")


def ddp_steps(case, folder, turn):
    """Seconds of each step of one DDP run."""
    shared = dict(case, function=str(ROOT / "examples" / case["function"]), data=str(case["data"]),
                  examples=str(ROOT / "examples"), store=str(folder / f"store-{turn}"), ranks=RANKS, steps=STEPS)
    ranks = [
        subprocess.Popen([sys.executable, "-c", DDP, json.dumps(shared | dict(rank=rank))],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"})
        for rank in range(RANKS)
    ]
    outputs = [rank.communicate(timeout=600) for rank in ranks]
    for number, (rank, (_, errors)) in enumerate(zip(ranks, outputs)):
        refuse_failure(f"rank {number} of PyTorch DDP", rank.returncode, errors)
    return json.loads(outputs[0][0])


def motley_steps(case, model, folder, turn):
    """Seconds of each step of one run with two workers: of the slower rank."""
    half = case["batch"] // RANKS
    run_dir = folder / f"run-{turn}"
    words = ["run", "-m", model, "-C", folder / "pair.toml", "--data", case["data"], *case["flags"],
             "--global-batch", case["batch"], "--steps", STEPS, "--batch-split", f"{half},{half}",
             "--batch-norm", "local", "--optimizer", "sgd", "--lr", "0.01", "--momentum", "0.9",
             "--run-dir", run_dir, "--json"]
    done = subprocess.run([str(word) for word in [BUILD / "motley", *words]], check=False, capture_output=True, text=True,
                          env=os.environ | {"MOTLEY_PROFILES": str(folder / "profiles.db")})
    refuse_failure(f"motley run of {model.name}, turn {turn}", done.returncode, done.stderr)
    return [json.loads(line)["step_s"] for line in (run_dir / "log.jsonl").read_text().splitlines()]


def row(name, case):
    motley, ddp = [], []
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = pathlib.Path(name_of_folder)
        (folder / "pair.toml").write_text(CLUSTER)
        model = folder / "model.motley"
        subprocess.run([sys.executable, "-m", "motley.export", ROOT / "examples" / case["function"], "-o", model],
                       check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "python")}, stdout=subprocess.DEVNULL)
        for turn in range(ROUNDS):
            motley += motley_steps(case, model, folder, turn)[WARM_UP:]
            ddp += ddp_steps(case, folder, turn)[WARM_UP:]
    ours, theirs = statistics.median(motley), statistics.median(ddp)
    return dict(case=f"{name} x{RANKS} DDP", motley_s=ours, pytorch_s=theirs, ratio=ours / theirs)


def rows(names=CASES):
    """One row a case, with the keys of engine.json: case, motley_s, pytorch_s, ratio."""
    for name in names:
        yield row(name, CASES[name])


if __name__ == "__main__":
    for each in rows():
        print(f"{each['case']:24} {each['motley_s'] * 1e3:8.3f} ms {each['pytorch_s'] * 1e3:8.3f} ms {each['ratio']:6.2f}")
