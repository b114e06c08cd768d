"""What equal bits on unlike devices cost: the update of an element beside PyTorch's fused kernel, with
the vectors of this machine and without any, and whole steps with portable beside native updates.

Everything runs in turns; figures are medians over the rounds. Steps run on three emulated devices
(0.8, 0.4, 0.2 of a core) in shared memory, and between namespaces of 1 Gbit/s they would wait for
the bytes that the table names. Writes build/bench/unlike.json.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from emulated import BUILD, CASES, ROOT, SPEEDS, cluster_text, motley

RECIPES = {
    "sgd, momentum": ["--optimizer", "sgd", "--momentum", 0.9],
    "adamw": ["--optimizer", "adamw"],
    "adamw, clipped": ["--optimizer", "adamw", "--clip-norm", 1],
    "lamb": ["--optimizer", "lamb"],
    "adafactor": ["--optimizer", "adafactor"],
    "muon": ["--optimizer", "muon", "--momentum", 0.9],
}


def kernels():
    for capability in ("default", "avx2", "avx512"):
        done = subprocess.run([BUILD / "bench_unlike_driver"], capture_output=True, text=True, check=True,
                              env=dict(os.environ, ATEN_CPU_CAPABILITY=capability))  # fmt: skip
        for line in done.stdout.splitlines():
            name, elements, fused, ours = line.split()
            yield dict(kernel=name, pytorch_uses=capability, elements=int(elements), fused_ns=float(fused), ours_ns=float(ours))


def exchanged_bytes(run_dir):
    """Of a step, by the first rank."""
    program = (run_dir / "program.txt").read_text().split("\ndevice ")[1]
    sizes = {"f32": 4, "f64": 8}
    total = 0
    for line in program.splitlines():
        if "motley::all_reduce(" not in line:
            continue
        buffer = line.split("motley::all_reduce(")[1].split(")")[0]
        shape = next(each for each in program.splitlines() if each.startswith(f"buffer {buffer}:")).split()[3:]
        dtype, _, extents = " ".join(shape).partition("[")
        elements = 1
        for extent in extents.partition("]")[0].split(","):
            elements *= int(extent) if extent.strip() else 1
        total += elements * sizes[dtype.strip()]
    return total


def steps(name, recipe, folder, rounds):
    case = CASES[name]
    cluster = folder / "three.toml"
    cluster.write_text(cluster_text(SPEEDS))
    model = folder / f"{name}.motley"
    if not model.exists():
        subprocess.run([sys.executable, "-m", "motley.export", ROOT / "examples" / case["function"], "-o", model], check=True,
                       capture_output=True)  # fmt: skip
    share = case["batch"] // 7
    times = {"native": [], "portable": []}
    moved = {}
    for _ in range(rounds):
        for updates in times:
            words = ["run", "-m", model, "-C", cluster, "--data", ROOT / "examples/data" / case["data"], "--global-batch", 7 * share,
                     "--batch-split", f"{4 * share},{2 * share},{share}", "--steps", case["steps"], "--resume", "never",
                     "--profiles", folder / "profiles.db", "--profile-rounds", 1, "--updates", updates,
                     "--run-dir", folder / updates, *RECIPES[recipe]]  # fmt: skip
            if "seq" in case:
                words += ["--seq", case["seq"]]
            times[updates].append(motley(*words)["step_s_median"])
            moved[updates] = exchanged_bytes(folder / updates)
    ratios = [b / a for a, b in zip(times["native"], times["portable"])]
    return dict(case=name, recipe=recipe, native_s=statistics.median(times["native"]), portable_s=statistics.median(times["portable"]),
                ratio=statistics.median(ratios), native_bytes=moved["native"], portable_bytes=moved["portable"])  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", default="mlp,cnn,gpt")
    options = parser.parse_args()
    rows = []
    for row in kernels():
        rows.append(row)
        print(f"{row['kernel']:<6} {row['elements']:>9} elements, PyTorch with {row['pytorch_uses']:<8} fused {row['fused_ns']:.3f} ns "
              f"ours {row['ours_ns']:.3f} ns, {row['ours_ns'] / row['fused_ns']:.2f}", flush=True)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for name in options.cases.split(","):
            for recipe in RECIPES:
                row = steps(name, recipe, pathlib.Path(folder), options.rounds)
                rows.append(row)
                print(f"{name:<4} {recipe:<15} native {1e3 * row['native_s']:.2f} ms, portable {1e3 * row['portable_s']:.2f} ms, "
                      f"{row['ratio']:.3f}; all-reduced {row['native_bytes']} and {row['portable_bytes']} bytes", flush=True)  # fmt: skip
    (BUILD / "bench").mkdir(exist_ok=True)
    (BUILD / "bench/unlike.json").write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
