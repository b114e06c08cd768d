"""How long an export takes, and how much memory: models of torchvision and transformers as people have them.

resnet50 at 224 x 224, GPT-2 of 124 million parameters with weights (128 tokens), Llama of 8 billion from its configuration
alone (2,048 tokens); then GPT-2 once more, unchanged, from the cache. Whole commands as a user waits for them, imports of the
packages included, once they are compiled. Cases may be named. Needs .venv-zoo (`make bench-export` makes it). Prints one table and writes
build/bench/export.json: model, seconds, cpu_seconds (of all cores), peak_bytes, operators, to_reach_s.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
RESNET = """
import torch, torchvision
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torchvision.models.resnet50()

    def forward(self, x, y):
        return nn.functional.cross_entropy(self.net(x), y)


def model():
    torch.manual_seed(0)
    return Net(), (torch.randn(4, 3, 224, 224), torch.randint(0, 1000, (4,)))
"""
GPT2 = """
import sys, torch, transformers
torch.manual_seed(0)
transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(sys.argv[1])
"""
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}  # fmt: skip
CASES = {  # what is exported, flags, seconds to reach
    "resnet50": ("{folder}/resnet.py:model", ["--no-cache"], 15),
    "gpt2": ("hf:{folder}/gpt2", ["--no-cache"], 20),
    "llama8b": ("hf:{folder}/llama", ["--graph-only", "--no-cache"], 120),
    "gpt2 again": ("hf:{folder}/gpt2", [], None),
}


def environment(folder):
    """Bytecode is kept, as Python does by itself: without, every import compiles PyTorch anew."""
    made = dict(os.environ, PYTHONPATH=str(ROOT / "python"), XDG_CACHE_HOME=str(folder / "cache"))
    made.pop("PYTHONDONTWRITEBYTECODE", None)
    return made


def prepare(folder):
    (folder / "resnet.py").write_text(RESNET)
    (folder / "llama").mkdir()
    (folder / "llama/config.json").write_text(json.dumps(LLAMA))
    command = [sys.executable, "-c", GPT2, folder / "gpt2"]
    subprocess.run(command, check=True, env=environment(folder), capture_output=True)
    imports = "import motley, torchvision, transformers.models.llama.modeling_llama"
    subprocess.run([sys.executable, "-c", imports], check=True, env=environment(folder))


def run(arguments, folder):
    """(result of an export, its seconds, what the system says it used)."""
    command = [sys.executable, "-m", "motley.export", *map(str, arguments), "--json"]
    with open(folder / "out", "w") as out, open(folder / "log", "w") as log:
        begin = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, stderr=log, env=environment(folder))
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
    if status != 0:
        sys.exit((folder / "log").read_text())
    return json.loads((folder / "out").read_text()), seconds, usage


def measure(name, folder):
    """A row."""
    spec, flags, to_reach = CASES[name]
    arguments = [spec.format(folder=folder), "-o", folder / "model.motley", *flags]
    if name.endswith("again"):
        run(arguments, folder)
    result, seconds, usage = run(arguments, folder)
    print((folder / "log").read_text(), file=sys.stderr)
    return {
        "model": name, "seconds": seconds, "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024, "operators": result["operators"], "to_reach_s": to_reach,
    }  # fmt: skip


def main():
    with tempfile.TemporaryDirectory() as text:
        folder = pathlib.Path(text)
        prepare(folder)
        rows = [measure(name, folder) for name in sys.argv[1:] or CASES]
    print(f"{'model':<12}{'operators':>10}{'seconds':>9}{'of CPUs':>9}{'to reach':>10}{'peak':>10}")
    for row in rows:
        bar = f"{row['to_reach_s']} s" if row["to_reach_s"] else ""
        print(
            f"{row['model']:<12}{row['operators']:>10}{row['seconds']:>9.1f}{row['cpu_seconds']:>9.1f}{bar:>10}{row['peak_bytes'] / 2**30:>6.2f} GiB"
        )
    output = BUILD / "bench"
    output.mkdir(exist_ok=True, parents=True)
    (output / "export.json").write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
