"""Predictions of Motley's own runs on emulated unequal devices, for splits and models not profiled.

Three models are profiled on three emulated devices at the split that planning chooses. Then
  splits   other splits of the same models, also over two of the devices: none was ever timed;
  models   a wider, deeper or narrower relative of each: none of it was profiled, its operators are
           modelled from what the three models' took (`--profile model`);
are predicted by `motley plan` and run. Writes build/bench/own_runs.json, which `make bench-accuracy`
reads: rows of set, metric and cases [{predicted, low, high, measured}].
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import emulated
from emulated import BUILD, ROOT, motley

SPEEDS = (0.8, 0.4, 0.2)
CASES = {
    name: dict(case, steps=steps) for (name, case), steps in zip(emulated.CASES.items(), (60, 25, 20), strict=True)
}
# Shares of the global batch; 0 leaves a device out.
SPLITS = ((1, 1, 1), (4, 1, 1), (2, 2, 1), (3, 2, 0), (5, 0, 1), (0, 2, 1))
RELATIVES = {
    "mlp_wide": ("mlp", "mlp.py:Mlp(width=768)"),
    "mlp_narrow": ("mlp", "mlp.py:Mlp(width=320)"),
    "cnn_wide": ("cnn", "digits_cnn.py:DigitsCnn(width=64)"),
    "cnn_narrow": ("cnn", "digits_cnn.py:DigitsCnn(width=32)"),
    "gpt_deep": ("gpt", "char_gpt.py:CharGpt(layers=5)"),
    "gpt_wide": ("gpt", "char_gpt.py:CharGpt(width=128, heads=4, layers=2)"),
}


def export(function, path):
    subprocess.run(
        [sys.executable, "-m", "motley.export", function, "-o", path],
        check=True, capture_output=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "python")),
    )


def export_relative(text, folder, path):
    """A class of an example with other sizes, and the example's inputs."""
    file, call = text.split(":")
    module = pathlib.Path(file).stem
    source = folder / f"{path.stem}.py"
    source.write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'examples')!r})\nimport torch\nimport {module}\n\n\n"
        f"def model():\n    _, inputs = {module}.model()\n    torch.manual_seed(0)\n"
        f"    return {module}.{call}, inputs\n"
    )
    export(f"{source}:model", path)


def split_of(shares, batch):
    """Samples by largest remainder."""
    exact = [batch * share / sum(shares) for share in shares]
    samples = [int(each) for each in exact]
    order = sorted(range(len(exact)), key=lambda i: samples[i] - exact[i])
    for i in order[: batch - sum(samples)]:
        samples[i] += 1
    return ",".join(map(str, samples))


def predict_and_run(case, model, folder, more):
    """(predicted, measured) seconds, and the same of the bytes of each device."""
    cluster, plan = folder / "three.toml", folder / "plan.json"
    common = ["-m", model, "-C", cluster, "--profiles", folder / "profiles.db"]
    planned = motley("plan", *common, "--global-batch", case["batch"], "-o", plan, *more)
    data = ["--data", ROOT / "examples/data" / case["data"]]
    if "seq" in case:
        data += ["--seq", case["seq"]]
    ran = motley(
        "run", *common, *data, "--plan", plan, "--steps", case["steps"], "--resume", "never",
        "--run-dir", folder / "run",
    )
    low, high = planned.get("predicted_step_interval_s", [0, 1e9])
    seconds = dict(predicted=planned["predicted_step_s"], low=low, high=high, measured=ran["step_s_median"])
    memory = []
    for device in ran["devices"]:
        predicted = planned["peak_bytes"][device["name"]]
        low, high = planned.get("peak_interval_bytes", {}).get(device["name"], [0, 1e15])
        memory.append(dict(predicted=predicted, low=low, high=high, measured=device["peak_bytes"]))
    return seconds, memory


def measure(folder, say):
    (folder / "three.toml").write_text(emulated.cluster_text(SPEEDS))
    times, memories = {"splits": [], "models": []}, []
    for name, case in CASES.items():
        export(f"{ROOT / 'examples' / case['function']}", folder / f"{name}.motley")
        say(f"{name}: profile")
        motley(
            "profile", "-m", folder / f"{name}.motley", "-C", folder / "three.toml",
            "--profiles", folder / "profiles.db", "--global-batch", case["batch"],
        )
    for name, case in CASES.items():
        for shares in SPLITS:
            split = split_of(shares, case["batch"])
            seconds, memory = predict_and_run(case, folder / f"{name}.motley", folder, ["--batch-split", split])
            say(f"{name} {split}: predicted {seconds['predicted']:.4f} s, measured {seconds['measured']:.4f} s")
            times["splits"].append(seconds)
            memories += memory
    for name, (base, text) in RELATIVES.items():
        export_relative(text, folder, folder / f"{name}.motley")
        seconds, memory = predict_and_run(CASES[base], folder / f"{name}.motley", folder, ["--profile", "model"])
        say(f"{name}: predicted {seconds['predicted']:.4f} s, measured {seconds['measured']:.4f} s")
        times["models"].append(seconds)
        memories += memory
    return times, memories


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", default=BUILD / "bench/own_runs.json", type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times, memories = measure(pathlib.Path(folder), lambda text: print(text, file=sys.stderr))
    rows = [
        dict(set="own runs: splits not profiled", metric="time", to_reach=0.05, cases=times["splits"],
             protocol="3 models profiled at one split on 3 emulated devices; 6 other splits each"),
        dict(set="own runs: models not profiled", metric="time", to_reach=0.05, cases=times["models"],
             protocol="6 relatives of the 3 models, whose operators were never measured"),
        dict(set="own runs", metric="memory", to_reach=0.03, cases=memories,
             protocol="peak of every device of those runs"),
    ]
    options.o.parent.mkdir(parents=True, exist_ok=True)
    options.o.write_text(json.dumps({"rows": rows}, indent=1))
    for row in rows:
        errors = [abs(each["predicted"] / each["measured"] - 1) for each in row["cases"]]
        print(f"{row['set']:<34}{row['metric']:<8}{100 * sum(errors) / len(errors):>6.1f}% worst {100 * max(errors):.1f}%")


if __name__ == "__main__":
    main()
