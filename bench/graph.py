"""How long a model file takes to load: GPTs of growing depth, exported without weights.

Prints one table and writes build/bench/graph.json: layers, ops, read_s (median of 21), and doctor_s,
the whole command `motley doctor -m` as a user waits for it.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
LAYERS = (3, 12, 24)
MODEL = """
import sys; sys.path.insert(0, {examples!r})
import torch, char_gpt
def model():
    _, inputs = char_gpt.model()
    return char_gpt.CharGpt(layers={layers}), inputs
"""


def measure(layers, folder):
    """A row."""
    source, target = folder / f"gpt{layers}.py", folder / f"gpt{layers}.motley"
    source.write_text(MODEL.format(examples=str(ROOT / "examples"), layers=layers))
    subprocess.run(
        [sys.executable, "-m", "motley.export", f"{source}:model", "-o", target, "--graph-only"],
        check=True, capture_output=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "python")),
    )
    output = subprocess.run([BUILD / "bench_graph_driver", target], check=True, capture_output=True, text=True)
    read = json.loads(output.stdout)
    begin = time.perf_counter()
    subprocess.run([BUILD / "motley", "doctor", "-m", target], check=True, capture_output=True)
    doctor_s = time.perf_counter() - begin
    return {"layers": layers, "ops": read["ops"], "read_s": statistics.median(read["seconds"]), "doctor_s": doctor_s}


def main():
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(layers, pathlib.Path(folder)) for layers in LAYERS]
    print(f"{'layers':>6}{'operators':>11}{'read':>10}{'doctor':>10}")
    for row in rows:
        print(f"{row['layers']:>6}{row['ops']:>11}{row['read_s'] * 1e3:>7.2f} ms{row['doctor_s'] * 1e3:>7.0f} ms")
    output = BUILD / "bench"
    output.mkdir(exist_ok=True, parents=True)
    (output / "graph.json").write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
