"""Where the time of the demo's runs went: predicted shares of the step beside measured ones.

`motley demo` trains two models on three emulated devices, each by the equal split and by the plan found. Of each run
and device: what computing, exchanges, waiting for others and nothing take of its steps, and their sum, which is to be
the step; of each run the operators, those whose share deviates most first. `--demo FOLDER` takes a demo that has run.
Writes build/bench/measured.json.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import spmd

RUNS = ("digits_cnn-equal", "digits_cnn", "char_gpt-equal", "char_gpt")
SHOWN, NEAR = 5, 0.03  # operators; a deviation beyond this is to be explained


def demo(folder):
    """Its checks may fail on a machine that does something else, too; what it wrote counts."""
    subprocess.run(
        [spmd.BUILD / "motley", "demo", "--python", sys.executable, "--examples", spmd.ROOT / "examples", "--directory", folder, "-q"],
        stdout=subprocess.DEVNULL)


def describe(run):
    said = subprocess.run([spmd.BUILD / "bench_measured_driver", run], check=True, stdout=subprocess.PIPE).stdout
    return json.loads(said) | {"run": run.name}


def print_run(row):
    print(f"\n{row['run']}: {1e3 * row['step_s']:.1f} ms a step, predicted {1e3 * row['predicted_step_s']:.1f}")
    print(f"  {'of a step':<10}" + "".join(f" {part + ' p/m':>16}" for part in ("compute", "exchange", "waiting", "idle")) + f" {'sum':>7}")
    for device in row["devices"]:
        cells = "".join(f" {device['predicted_parts'][part]:>8.1%} {device['parts'][part]:>7.1%}" for part in device["parts"])
        print(f"  {device['device']:<10}{cells} {device['sum']:>7.4f}")
    for each in row["operators"][:SHOWN]:
        points = each["predicted"] - each["measured"]
        print(f"  {each['operator']:<36} {each['predicted']:>7.1%} {each['measured']:>7.1%} {100 * points:>+6.1f}{'  *' if abs(points) > NEAR else ''}")


def main():
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--demo", type=pathlib.Path, help="folder of a demo that has run")
    folder = flags.parse_args().demo
    if folder is None:
        folder = spmd.BUILD / "bench/measured-demo"
        demo(folder)
    rows = [describe(folder / run) for run in RUNS if (folder / run / "summary.json").exists()]
    for row in rows:
        print_run(row)
    (spmd.BUILD / "bench/measured.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0 if len(rows) == len(RUNS) else 1


if __name__ == "__main__":
    sys.exit(main())
