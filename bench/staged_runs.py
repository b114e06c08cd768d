"""Stages in truth: the GPT of the examples on devices of which none holds it with Adam's states, measured beside what
`motley run` predicts and the bound of its plan.

    three        three emulated devices of this machine (examples/small_devices.toml)
    two-hosts    two hosts of two devices each, behind cables of 200 Mbit/s (as root: tests/hosts/namespaces.py)

Each `--rounds` times, medians. Writes build/bench/staged_runs.json: case, step_s, predicted_step_s, lower_bound_s,
prediction_error, peak_errors (predicted over measured, less 1, by device), all_s.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import sys
import tempfile

from emulated import BUILD, ROOT, motley
from own_runs import export

sys.path.insert(0, str(ROOT / "tests"))
from hosts import namespaces

DATA = ROOT / "examples/data/devils_dictionary.bin"
RATE = 200  # Mbit/s
DEVICES = {"a": ((0.35, 6), (0.25, 5)), "b": ((0.35, 6), (0.2, 5))}  # cores, MiB


def cluster_text():
    nodes = "".join(
        f'[[node]]\nname = "{name}"\nhost = "{name}"\n' + "".join(
            f'[[node.device]]\nkind = "cpu"\nspeed = {cores}\nmemory = "{memory}MiB"\n' for cores, memory in devices)
        for name, devices in DEVICES.items())
    link = f'[[link]]\nbetween = ["a", "b"]\nbandwidth = "{RATE}Mbps"\nlatency = "100us"\n'
    return 'schema = "motley.cluster/1"\nname = "two hosts"\n' + nodes + link


def on_this_machine(verb, flags, folder):
    common = ["-m", folder / "gpt.motley", "-C", ROOT / "examples/small_devices.toml", "--profiles", folder / "three.db"]
    data = ["--data", DATA] if verb == "run" else []
    return motley(verb, *common, *data, *flags)


def on_hosts(verb, flags, lead):
    data = f"--data {DATA.name}" if verb == "run" else ""
    command = f"{verb} -m gpt.motley -C cluster.toml {data} {' '.join(map(str, flags))}"
    done = lead.run(f"{BUILD / 'motley'} {command} --json -q", check=False, timeout=1200)
    if done.returncode != 0:
        sys.exit(f"motley {command}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def measure(call, where, options):
    """Runs of one plan, each with the plan's bound."""
    plan = call("plan", ["--global-batch", 16, "--planner", "stages", "--optimizer", "adam", "-o", where / "plan.json"])
    return [call("run", ["--plan", where / "plan.json", "--seq", 64, "--tokens", "u16", "--steps", options.steps, "--resume", "never",
                         "--run-dir", where / f"run-{i}"]) | {"lower_bound_s": plan["lower_bound_s"]} for i in range(options.rounds)]


def row_of(case, runs):
    median = {key: statistics.median(run[key] for run in runs) for key in ("predicted_step_s", "lower_bound_s")}
    step = statistics.median(run["step_s_median"] for run in runs)
    peaks = [device["predicted_peak_bytes"] / device["peak_bytes"] - 1 for device in runs[-1]["devices"]]
    row = {"case": case, "step_s": step, **median, "prediction_error": median["predicted_step_s"] / step - 1,
           "peak_errors": peaks, "all_s": [run["step_s_median"] for run in runs]}
    print(f"{case:<10} step {1e3 * step:.1f} ms, predicted {1e3 * row['predicted_step_s']:.1f} ({row['prediction_error']:+.1%}), "
          f"bound {1e3 * row['lower_bound_s']:.1f} ({step / row['lower_bound_s']:.2f}x); peaks predicted "
          f"{', '.join(f'{error:+.1%}' for error in peaks)}", flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        export(f"{ROOT}/examples/char_gpt.py:model", folder / "gpt.motley")
        rows = [row_of("three", measure(lambda verb, flags: on_this_machine(verb, flags, folder), folder, options))]
        if namespaces.missing():
            print(f"two-hosts: left out: {namespaces.missing()}")
        else:
            cores = {host: sum(speed for speed, _ in devices) + 0.3 for host, devices in DEVICES.items()}
            with namespaces.Hosts(folder / "net", cores, rate=f"{RATE}mbit") as hosts:
                lead = hosts["a"]
                home = lead.home()
                shutil.copy(folder / "gpt.motley", home)
                shutil.copy(DATA, home)
                (home / "cluster.toml").write_text(cluster_text())
                runs = measure(lambda verb, flags: on_hosts(verb, flags, lead), pathlib.Path(), options)
                rows.append(row_of("two-hosts", runs))
    (BUILD / "bench").mkdir(exist_ok=True, parents=True)
    (BUILD / "bench/staged_runs.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
