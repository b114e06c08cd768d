"""How long planning takes: the planner's own time, and `motley plan` as a user waits for it.

Runs bench_plan, then times whole processes of `motley plan`, from start to exit, on 64 devices of
two built-in kinds, whose costs need no profile: wall seconds (plan_s) and seconds of CPU, the
shortest of five. Models are those of bench/spmd.py. Then models of 1,000 to 7,000 operators from torchvision and
transformers (.venv-zoo), planned once each by `auto` on four and on eight GPUs of two kinds, some of them in
micro-batches; `--large` runs these alone, NAME... those named. Writes build/bench/plan.json.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import time

import spmd

SAMPLES = 512
RUNS = 5
MODELS = ("gpt", "bert")
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 32000, "hidden_size": 2048,
    "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
}  # fmt: skip
LLAMA_8B = LLAMA | {
    "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_key_value_heads": 8,
}  # fmt: skip
DENSENET = """
import torch, torchvision
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torchvision.models.densenet121()

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.net(x), y)


def model():
    return Net(), (torch.randn(4, 3, 224, 224), torch.randint(0, 1000, (4,)))
"""
LARGE = {  # what is exported, flags
    "densenet121": ("{folder}/densenet.py:model", []),
    "llama-1.1b-512": ("hf:{folder}/llama-1.1b", ["--seq", "512"]),
    "llama-1.1b-2048": ("hf:{folder}/llama-1.1b", ["--seq", "2048"]),
    "llama-8b-2048": ("hf:{folder}/llama-8b", ["--seq", "2048"]),
}
LARGE_CLUSTERS = {"h100x2-rtx4090x2": ("h100-80g", "rtx4090", 2), "rtx4090x4-v100x4": ("rtx4090", "v100-16g", 4)}
LARGE_SAMPLES = (64, 256)


def cluster_text():
    text = 'schema = "motley.cluster/1"\nname = "bench"\n'
    for node in range(8):
        kind = "a100-40g" if node < 4 else "v100-16g"
        text += (f'[[node]]\nname = "n{node}"\nhost = "10.0.0.{node + 1}"\n'
                 f'[[node.device]]\nkind = "{kind}"\ncount = 8\n')
    return text + '[[link]]\nall = true\nbandwidth = "100Gbps"\nlatency = "20us"\n'


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def time_plan(model, planner, folder):
    """Seconds of one process, by the clock and of CPU."""
    command = [spmd.BUILD / "motley", "plan", "-m", model, "-C", folder / "plan.toml",
               "--global-batch", str(SAMPLES), "--planner", planner,
               "--profiles", folder / "plan.db", "--profile", "never", "--json"]
    before, start = cpu_seconds(), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start, cpu_seconds() - before


def export_large(name, folder):
    """The model file, made once."""
    path = folder / f"{name}.motley"
    if path.exists():
        return path
    (folder / "densenet.py").write_text(DENSENET)
    for config, text in (("llama-1.1b", LLAMA), ("llama-8b", LLAMA_8B)):
        (folder / config).mkdir(exist_ok=True)
        (folder / config / "config.json").write_text(json.dumps(text))
    spec, flags = LARGE[name]
    command = [spmd.ROOT / ".venv-zoo/bin/python", "-m", "motley.export", spec.format(folder=folder), "-o", path,
               "--graph-only", *flags]
    subprocess.run(command, check=True, env=dict(os.environ, PYTHONPATH=str(spmd.ROOT / "python")))
    return path


def time_large(name, folder):
    """Rows of a model: by cluster and batch."""
    rows = []
    for cluster, (first, second, count) in LARGE_CLUSTERS.items():
        (folder / f"{cluster}.toml").write_text(
            f'schema = "motley.cluster/1"\nname = "{cluster}"\n' + "".join(
                f'[[node]]\nname = "{kind}"\n[[node.device]]\nkind = "{kind}"\ncount = {count}\n'
                for kind in (first, second)))
        for samples in LARGE_SAMPLES:
            command = [spmd.BUILD / "motley", "plan", "-m", export_large(name, folder), "-C", folder / f"{cluster}.toml",
                       "--global-batch", str(samples), "--profiles", folder / "plan.db", "--profile", "never", "--json", "-q"]
            before, start = cpu_seconds(), time.monotonic()
            done = subprocess.run(command, capture_output=True, text=True)
            row = {"case": name, "cluster": cluster, "samples": samples, "plan_s": time.monotonic() - start,
                   "cpu_s": cpu_seconds() - before, "step_s": json.loads(done.stdout).get("predicted_step_s")}
            rows.append(row)
            step = f"{row['step_s']:.4g}" if row["step_s"] else "none"
            print(f"{name:<18} {cluster:<18} {samples:>5} {row['plan_s']:>8.2f} {row['cpu_s']:>8.2f} {step:>9}", flush=True)
    return rows


def run_large(names, folder):
    print(f"\n{'motley plan':<18} {'cluster':<18} {'batch':>5} {'plan_s':>8} {'cpu s':>8} {'step s':>9}")
    return [row for name in names or LARGE for row in time_large(name, folder)]


def main():
    folder = spmd.BUILD / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    if sys.argv[1:2] == ["--large"]:
        run_large(sys.argv[2:], folder)
        return 0
    out = folder / "plan.json"
    code = subprocess.run([spmd.BUILD / "bench_plan", out]).returncode
    if code != 0:
        return code
    (folder / "plan.toml").write_text(cluster_text())
    report = json.loads(out.read_text())
    print(f"\n{'motley plan, 64 devices':<28} {'planner':>8} {'plan_s':>8} {'cpu s':>8}")
    for model in spmd.export_models(MODELS):
        for planner in ("split", "auto"):
            wall, cpu = min(time_plan(model, planner, folder) for _ in range(RUNS))
            report["rows"].append({"case": f"motley plan {model.stem} --planner {planner}",
                                   "devices": 64, "plan_s": wall, "cpu_s": cpu})
            print(f"{model.stem:<28} {planner:>8} {wall:>8.3f} {cpu:>8.3f}")
    report["rows"] += run_large([], folder)
    out.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
