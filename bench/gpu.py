"""Models in the sizes that people train on one GPU, float32 without TF32: what `motley run` predicts beside what its step takes,
the predicted peak of memory beside the measured one, and the step of PyTorch's own loop. Each is profiled first, with all
operators of its own.

Writes build/bench/gpu.json: case, batch, step_s, predicted_step_s, prediction_error, peak_bytes, predicted_peak_bytes, eager_s.
Without a CUDA device it says so and ends.
"""

import argparse
import json
import pathlib
import tempfile

import numpy
import torch
from emulated import BUILD, ROOT, motley
from engine import Eager, in_turns, need_gpu
from own_runs import export

CASES = {"resnet50": 32, "vit": 32, "bert": 32, "gpt": 16, "vgg19": 32, "mlp": 64}
ONE_GPU = 'schema = "motley.cluster/1"\nname = "one"\n[[node]]\nname = "g"\n  [[node.device]]\n  kind = "cuda"\n'


def measure(name, batch, folder):
    function = ROOT / f"examples/full_size.py:{name}"
    eager = Eager(dict(function=f"full_size.py:{name}", batch=batch, optimizer="sgd", lr=0.01), fused=True, device="cuda")
    model, data, cluster = folder / f"{name}.motley", folder / f"{name}.npz", folder / "one.toml"
    numpy.savez(data, **{f"x{i}": x.numpy() for i, x in enumerate(eager.inputs)})
    (eager_s,) = in_turns([eager], 2.0)
    del eager
    torch.cuda.empty_cache()
    export(function, model)
    cluster.write_text(ONE_GPU)
    done = motley("run", "-m", model, "-C", cluster, "--data", data, "--global-batch", batch, "--steps", 30, "--lr", 0.01,
                  "--momentum", 0.9, "--resume", "never", "--run-dir", folder / f"run-{name}", "--profiles", folder / "gpu.db")
    (device,) = done["devices"]
    return dict(case=name, batch=batch, step_s=done["step_s_median"], predicted_step_s=done["predicted_step_s"],
                prediction_error=done["predicted_step_s"] / done["step_s_median"] - 1, peak_bytes=device["peak_bytes"],
                predicted_peak_bytes=device["predicted_peak_bytes"], eager_s=eager_s)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only these")
    options = parser.parse_args()
    need_gpu(parser)
    rows, target = [], BUILD / "bench/gpu.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    print(f"{'case':10} {'batch':>6} {'step':>10} {'predicted':>10} {'error':>7} {'eager':>10} {'ratio':>6} {'peak MiB':>9} {'predicted':>9}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.case or CASES:
            row = measure(name, CASES[name], pathlib.Path(folder))
            rows.append(row)
            print(f"{name:10} {row['batch']:6} {row['step_s'] * 1e3:7.2f} ms {row['predicted_step_s'] * 1e3:7.2f} ms {row['prediction_error']:7.1%} "
                  f"{row['eager_s'] * 1e3:7.2f} ms {row['step_s'] / row['eager_s']:6.2f} {row['peak_bytes'] / 2**20:9.0f} "
                  f"{row['predicted_peak_bytes'] / 2**20:9.0f}", flush=True)
            target.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
