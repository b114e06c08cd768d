"""What `motley plan` gives for Llama models on two hosts of unlike GPUs, which no device holds: the step of each planner,
the gap to the bound, and how long planning takes. Writes build/bench/staged_plans.json.

bench/staged_plans.py [NAME ...]     cases by name; all unless said
"""

import json
import os
import subprocess
import sys
import time

import spmd
from plan import LLAMA, LLAMA_8B, cpu_seconds

MODEL = '''
import json
from pathlib import Path

import torch
import transformers as hf
from torch import nn


class Loss(nn.Module):
    """Cross entropy of the next token, products in bfloat16."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, ids):
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.net(input_ids=ids).logits
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


def make(name):
    config = hf.LlamaConfig(**json.loads(Path(__file__).with_name(name + ".json").read_text()), use_cache=False)
    with torch.device("meta"):
        net = Loss(hf.LlamaForCausalLM(config))
    return net, (torch.zeros(2, 1024, dtype=torch.int64),)


def small():
    return make("small")


def large():
    return make("large")
'''
CONFIGS = {"small": LLAMA, "large": LLAMA_8B | {"vocab_size": LLAMA["vocab_size"]}}
CASES = {  # model, hosts of (kind, devices), link, samples a step, seconds to reach
    "llama-1.1b": ("small", (("a100-40g", 4), ("v100-16g", 4)), "25Gbps", 64, 1.0),
    "llama-8b": ("large", (("a100-80g", 8), ("h100-80g", 8)), "100Gbps", 64, 1.0),
    "llama-8b-256": ("large", (("a100-80g", 8), ("h100-80g", 8)), "100Gbps", 256, 3.6),
}
PLANNERS = ("split", "spmd", "stages", "auto")


def export(model, folder):
    path = folder / f"{model}.motley"
    if not path.exists():
        (folder / "llama.py").write_text(MODEL)
        (folder / f"{model}.json").write_text(json.dumps(CONFIGS[model]))
        command = [spmd.ROOT / ".venv-zoo/bin/python", "-m", "motley.export", f"{folder}/llama.py:{model}", "-o", path,
                   "--graph-only"]  # fmt: skip
        subprocess.run(command, check=True, env=dict(os.environ, PYTHONPATH=str(spmd.ROOT / "python")))
    return path


def write_cluster(name, hosts, link, folder):
    path = folder / f"{name}.toml"
    nodes = "".join(f'[[node]]\nname = "n{i}"\nhost = "10.0.0.{i + 1}"\n[[node.device]]\nkind = "{kind}"\ncount = {count}\n'
                    for i, (kind, count) in enumerate(hosts))  # fmt: skip
    path.write_text(f'schema = "motley.cluster/1"\nname = "{name}"\n{nodes}'
                    f'[[link]]\nall = true\nbandwidth = "{link}"\nlatency = "20us"\n')  # fmt: skip
    return path


def find_plan(name, planner, folder):
    model, hosts, link, samples, wanted = CASES[name]
    command = [spmd.BUILD / "motley", "plan", "-m", export(model, folder), "-C", write_cluster(name, hosts, link, folder),
               "--global-batch", str(samples), "--optimizer", "adamw", "--planner", planner, "--profiles",
               folder / "staged.db", "--profile", "never", "--json", "-q"]  # fmt: skip
    before, start = cpu_seconds(), time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    wall, cpu = time.monotonic() - start, cpu_seconds() - before
    found = json.loads(done.stdout)
    step, bound = found.get("predicted_step_s"), found.get("lower_bound_s")
    row = {"case": name, "planner": planner, "step_s": step, "bound_s": bound, "plan_s": wall, "cpu_s": cpu, "wanted_s": wanted}
    print(f"{name:<14} {planner:<8} " + (f"{step:>7.3f} {bound:>7.3f} {step / bound - 1:>6.0%}" if step else f"{'none':>7} {'':>14}")
          + f" {wanted:>7.1f} {wall:>7.1f} {cpu:>7.1f}", flush=True)  # fmt: skip
    return row


def main():
    folder = spmd.BUILD / "bench" / "staged"
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{'case':<14} {'planner':<8} {'step s':>7} {'bound':>7} {'gap':>6} {'wanted':>7} {'plan s':>7} {'CPU s':>7}")
    rows = [find_plan(name, planner, folder) for name in sys.argv[1:] or CASES for planner in PLANNERS]
    (spmd.BUILD / "bench/staged_plans.json").write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
