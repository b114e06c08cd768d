"""Does `auto` take the faster plan? The demo's models, each with several batches, on three emulated devices.

On one host, and with the third device behind a link of 200 Mbit/s, the plans of `split` (the best split
of the batch), `spmd` (the best sharding) and `auto` are trained in turns; plans that are the same are
trained once. Every batch has a profile of its own. Cases may be named. Prints one table and writes build/bench/choices.json: case, planner
whose plan `auto` took, step_s and predicted_step_s of each planner, auto_over_faster.
"""

import json
import os
import pathlib
import statistics
import sys
import tempfile

import emulated
from emulated import BUILD, CASES, ROOT, SPEEDS, motley
from own_runs import export

MODELS = {"cnn": (35, 70, 140, 280, 560), "gpt": (7, 14, 28, 56, 112)}
LINKS = ("near", "far")
PLANNERS = ("split", "spmd", "auto")
ROUNDS, ROUND_SECONDS = 3, 3.0


def cluster_text(third_is_far):
    links = "".join(
        f'[[link]]\nbetween = ["{near}", "c"]\nbandwidth = "200Mbps"\nlatency = "200us"\n' for near in "ab"
    )
    return emulated.cluster_text(SPEEDS) + (links if third_is_far else "")


def measure_case(model, batch, links, folder):
    case = CASES[model]
    files = ["-m", folder / f"{model}.motley", "-C", folder / f"{links}.toml", "--profiles", folder / f"{model}-{batch}.db"]
    plans = {planner: folder / f"{planner}.json" for planner in PLANNERS}
    said = {
        planner: motley("plan", *files, "--global-batch", batch, "--planner", planner, "-o", path)
        for planner, path in plans.items()
    }
    first_of = {path.read_text(): planner for planner, path in reversed(plans.items())}
    trained_as = {planner: first_of[path.read_text()] for planner, path in plans.items()}
    steps = {planner: [] for planner in set(trained_as.values())}
    for _ in range(ROUNDS):
        for planner, medians in steps.items():
            count = min(60, max(5, round(ROUND_SECONDS / said[planner]["predicted_step_s"])))
            data = ["--data", ROOT / "examples/data" / case["data"], *(["--seq", case["seq"]] if "seq" in case else [])]
            done = motley("run", *files, "--plan", plans[planner], *data, "--steps", count, "--resume", "never",
                          "--run-dir", folder / "run")
            medians.append(done["step_s_median"])
    step_s = {planner: statistics.median(steps[trained_as[planner]]) for planner in PLANNERS}
    return {
        "case": f"{model} {batch} {links}", "auto_took": trained_as["auto"], "step_s": step_s,
        "predicted_step_s": {planner: said[planner]["predicted_step_s"] for planner in PLANNERS},
        "auto_over_faster": step_s["auto"] / min(step_s["split"], step_s["spmd"]),
        "prediction_error": said["auto"]["predicted_step_s"] / step_s["auto"] - 1,
    }


def print_row(row):
    cells = "".join(f" {row['step_s'][p] * 1e3:>8.1f} {row['predicted_step_s'][p] / row['step_s'][p] - 1:>7.1%}"
                    for p in PLANNERS)
    print(f"{row['case']:<14}{cells}  {row['auto_took']:<5} {row['auto_over_faster']:>6.2f}", flush=True)


def main(wanted):
    names = [f"{m} {b} {links}" for m, batches in MODELS.items() for b in batches for links in LINKS]
    if unknown := set(wanted) - set(names):
        sys.exit(f"no case {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for links in LINKS:
            (folder / f"{links}.toml").write_text(cluster_text(links == "far"))
        for model in MODELS:
            export(f"{ROOT}/examples/{CASES[model]['function']}", folder / f"{model}.motley")
        print(f"{'case':<14}" + "".join(f" {p + ' ms':>8} {'error':>7}" for p in PLANNERS) + "  auto is  /best")
        for case in wanted or names:
            model, batch, links = case.split()
            rows.append(measure_case(model, int(batch), links, folder))
            print_row(rows[-1])
    errors = [abs(row["prediction_error"]) for row in rows]
    print(f"auto over the faster of both: at worst {max(row['auto_over_faster'] for row in rows):.2f};"
          f" its predictions: {statistics.median(errors):.1%} off in the median, {max(errors):.1%} at worst")
    out = BUILD / "bench/choices.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    main(sys.argv[1:])
