""
    "What is decided while a training runs. A row an instance; kinds may be named, all unless some are.

    plan models on emulated clusters : `motley run` by planner auto,
    whose plans are tried in turn,
    beside the same run by each plan that was tried,
    to the end,
    in turns : step of the one that goes on over the best;
steps' worth
           that trying cost
  run      the split learned from nothing in a real run, beside the run by a profile's best split
  norms    the same equal split with and without square norms of gradients, and with them as seldom as `motley` has them
           measured: step over step, in turns
  target   digits to an accuracy and text to a loss in real runs: seconds of steps by equal splits, by the best split of the
           first batch, and by the batch that `motley` decides on, begun with that split and from nothing
  split, change, jabas, ranks, ranks-slow   simulated clusters (adapt.cc)
  noise, batch, replay, set   noise scale and batches (adapt.cc), beside AdaptDL's module

Prints a table a kind and writes build/bench/adapt.json. MOTLEY_FULL=1: all models on all clusters.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
DATA = ROOT / os.environ.get("MOTLEY_DATA", "../shared/data")
FULL = os.environ.get("MOTLEY_FULL") == "1"
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "examples"), str(ROOT / "python")]

import adaptdl_peer  # noqa: E402
import emulated  # noqa: E402

#Functions of examples / families.py(or a file's), and the global batch.
MODELS = [("families.py:vgg", 24), ("families.py:gpt_tied", 24), ("sharded.py:vgg", 48), ("families.py:mlp", 96),
          ("digits_cnn.py:model", 120), ("families.py:bert", 24), ("families.py:lstm", 48), ("sharded.py:mixture", 16),
          ("families.py:vit", 24), ("families.py:resnet", 24)]  # fmt: skip
CLUSTERS = {
    "slow links": ((0.6, 0.5, 0.3), "1Gbps"),
    "quick links": ((0.6, 0.4, 0.2), "20Gbps"),
    "two": ((0.8, 0.3), "4Gbps"),
}
STEPS, LAST = 120, 40  # of a run; of them, those that say what the plan takes
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", PYTHONPATH=str(ROOT / "python"))


def motley(*words):
    done = subprocess.run([str(BUILD / "motley"), *map(str, words)], capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    return done.stdout


def cluster_text(speeds, bandwidth):
    return emulated.cluster_text(speeds) + f'[[link]]\nall = true\nbandwidth = "{bandwidth}"\nlatency = "100us"\n'


def samples_of(model, path, folder):
    """Data of the model's own example inputs, over and over."""
    import importlib

    import numpy as np

    file, function = model.split(":")
    _, inputs = getattr(importlib.import_module(file.removesuffix(".py")), function)()
    data = folder / "data.npz"
    np.savez(data, **{f"x{i}": value.numpy() for i, value in enumerate(inputs)})
    words = [sys.executable, "-m", "motley.export", ROOT / "examples" / model, "-o", path]
    subprocess.run(words, check=True, capture_output=True, env=ENVIRONMENT)
    return data


def steps_of(run_dir):
    return [json.loads(line)["step_s"] for line in (run_dir / "log.jsonl").read_text().splitlines()]


def plan_rows(folder):
    rows = []
    for i, (model, batch) in enumerate(MODELS):
        own = folder / str(i)
        own.mkdir()
        data = samples_of(model, own / "m.motley", own)
        clusters = list(CLUSTERS.items())
        for name, (speeds, bandwidth) in clusters if FULL else [clusters[i % len(clusters)]]:
            cluster = own / "cluster.toml"
            cluster.write_text(cluster_text(speeds, bandwidth))
            words = ["run", "-m", own / "m.motley", "-C", cluster, "--data", data, "--steps", STEPS, "--lr", 0.001,
                     "--profiles", own / "p.db", "--resume", "never", "-q"]  # fmt: skip
            chosen = own / "chosen"
            motley(*words, "--global-batch", batch, "--adapt", "plan", "--run-dir", chosen)
            path = chosen / "decisions.jsonl"
            decisions = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
            plans = list(dict.fromkeys(each["plan"] for each in decisions if each["plan"]))
            if len(plans) < 2:
                print(f"  {model} on {name}: no other plan is worth a trial", flush=True)
                continue
            ends = [[] for _ in plans]
            for turn in range(3 if FULL else 2):
                for number, plan in enumerate(plans):
                    (own / "plan.json").write_text(plan)
                    alone = own / f"alone{number}-{turn}"
                    motley(*words, "--plan", own / "plan.json", "--adapt", "none", "--run-dir", alone)
                    ends[number].append(statistics.median(steps_of(alone)[-LAST:]))
            whole = [min(each) for each in ends]
            last = plans.index([each["plan"] for each in decisions if each["plan"]][-1])
            tried = steps_of(chosen)
            decided = decisions[-1]["begins"]
            cost = sum(tried[:decided]) / min(whole) - decided
            first = whole[0]
            rows.append({"kind": "plan", "case": f"{model} on {name}", "policy": "motley", "plans": len(plans),
                         "step_s": whole[last], "best_step_s": min(whole), "planned_step_s": first,
                         "trial_steps": cost, "decided_at": decided})  # fmt: skip
            print(f"  {rows[-1]['case']:<42} {len(plans)} plans  chosen {1e3 * whole[last]:6.1f} ms, best "
                  f"{1e3 * min(whole):6.1f}, planned {1e3 * first:6.1f}; decided at {decided}, cost {cost:.1f} steps", flush=True)  # fmt: skip
    return rows


def run_rows(folder):
    """From nothing and an equal split, beside the split that a profile gives."""
    rows = []
    model, batch = "digits_cnn.py:model", 240
    own = folder / "run"
    own.mkdir()
    samples_of(model, own / "m.motley", own)
    data = ROOT / "examples/data/digits.npz"
    for name, (speeds, bandwidth) in CLUSTERS.items():
        cluster = own / "cluster.toml"
        cluster.write_text(cluster_text(speeds, "20Gbps" if name == "slow links" else bandwidth))
        common = ["-m", own / "m.motley", "-C", cluster, "--profiles", own / "p.db"]
        motley("plan", *common, "--global-batch", batch, "--planner", "equal", "-o", own / "equal.json")
        motley("plan", *common, "--global-batch", batch, "--planner", "split", "-o", own / "split.json")
        found = {}
        for turn in range(2):
            for way, plan, flags in (("motley", "equal", ["--adapt", "split", "--profiles", own / "none.db"]),
                                     ("profile", "split", ["--adapt", "none"]), ("even", "equal", ["--adapt", "none"])):  # fmt: skip
                run_dir = own / f"{way}{turn}"
                motley("run", "-m", own / "m.motley", "-C", cluster, "--data", data, "--steps", STEPS, "--plan",
                       own / f"{plan}.json", "--run-dir", run_dir, "--resume", "never", "-q", *flags)  # fmt: skip
                found.setdefault(way, []).append(statistics.median(steps_of(run_dir)[-LAST:]))
        for way, steps in found.items():
            rows.append({"kind": "run", "case": f"{model} on {name}", "policy": way, "step_s": min(steps),
                         "reference_step_s": min(found["profile"])})  # fmt: skip
            print(f"  {rows[-1]['case']:<42} {way:<8} {1e3 * min(steps):6.1f} ms")
    return rows


def seconds_to(run_dir, is_reached):
    """Of steps, until an evaluation is good enough; none: none was. Beside it, each step's batch."""
    spent, batches = 0.0, []
    for line in (run_dir / "log.jsonl").read_text().splitlines():
        each = json.loads(line)
        if "evaluation" in each:
            if is_reached(each["evaluation"]):
                return spent, batches
        else:
            spent += each["step_s"]
            batches.append(each.get("batch"))
    return None, batches


EXAMPLE_DATA = ROOT / "examples/data"
DIGITS, TEXT = EXAMPLE_DATA / "digits.npz", EXAMPLE_DATA / "devils_dictionary.bin"
TARGETS = {
    "digits to 97 %": dict(
        model="digits_cnn.py:model", batch=16, reached=lambda each: each["metrics"]["accuracy"] >= 0.97,
        recipe=["--lr", 0.02, "--momentum", 0.9],
        data=["--data", f"{DIGITS}[0:1400]", "--eval-data", f"{DIGITS}[1400:]", "--eval-every", 10, "--epochs", 6],
    ),
    "text to a loss of 2.7": dict(
        model="char_gpt.py:model", batch=8, reached=lambda each: each["loss"] <= 2.7, recipe=["--lr", 0.001, "--optimizer", "adam"],
        data=["--data", f"{TEXT}[0:2900]", "--eval-data", f"{TEXT}[2900:]", "--seq", 64, "--eval-every", 10, "--epochs", 1],
    ),
}  # fmt: skip

#Real samples, whose gradients differ as they do in training, \
    but for the last one : drawn like its inputs, of which nothing can be learned.
NORMS = [("digits_cnn.py:model", 120, ["--data", DIGITS], []), ("mlp.py:model", 96, ["--data", DIGITS], []),
         ("mlp.py:model", 96, ["--data", DIGITS], ["--optimizer", "adam"]),
         ("char_gpt.py:model", 8, ["--data", TEXT, "--seq", 64], ["--optimizer", "adam"]), ("families.py:bert", 24, None, [])]  # fmt: skip


def draw_samples(path, count=2000):
    """Data as that of `samples_of`, each element drawn from those that it has."""
    import numpy as np

    random = np.random.default_rng(0)
    own = np.load(path)
    np.savez(path, **{name: random.choice(own[name].ravel(), (count, *own[name].shape[1:])) for name in own})
    return path


def norms_rows(folder):
    """Limits leave one batch, and simigrad splits evenly: nothing is decided, but norms are counted and reported."""
    rows = []
    for i, (model, batch, data, recipe) in enumerate(NORMS):
        own = folder / f"norms{i}"
        own.mkdir()
        drawn = samples_of(model, own / "m.motley", own)
        data = data or ["--data", draw_samples(drawn)]
        cluster = own / "cluster.toml"
        cluster.write_text(cluster_text((0.5, 0.5), "20Gbps"))
        plan = own / "equal.json"
        motley("plan", "-m", own / "m.motley", "-C", cluster, "--global-batch", batch, "--planner", "equal", "--lr", 1e-4,
               "--profiles", own / "p.db", "--profile-rounds", 1, "-o", plan, *recipe)  # fmt: skip
        found = {"with": [], "without": [], "seldom": []}
        limits = ["--adapt", "batch", "--batch-limits", f"{batch}:{batch}", "--batch-rule", "none", "--policy"]
        ways = {"with": [*limits, "simigrad"], "without": ["--adapt", "none"], "seldom": [*limits, "motley"]}
        for turn in range(5 if FULL else 3):
            for way, flags in ways.items():
                run_dir = own / f"{way}{turn}"
                motley("run", "-m", own / "m.motley", "-C", cluster, *data, "--steps", 600, "--plan", plan, "--run-dir",
                       run_dir, "--profiles", own / "none.db", "--resume", "never", "-q", *flags)  # fmt: skip
                found[way].append(steps_of(run_dir)[450:])
        counted, plain, seldom = (statistics.median(usual_step(each) for each in found[way]) for way in ("with", "without", "seldom"))
        lines = [json.loads(line) for line in (own / "seldom0/log.jsonl").read_text().splitlines()]
        every = 150 / max(1, sum("noise" in each for each in lines[450:]))
        rows.append({"kind": "norms", "case": " ".join([model, *recipe]), "policy": "motley", "step_s": counted,
                     "reference_step_s": plain, "seldom_step_s": seldom, "every": every})  # fmt: skip
        print(f"  {rows[-1]['case']:<42} {1e3 * counted:6.2f} ms with norms, {1e3 * plain:6.2f} without: "
              f"{100 * (counted / plain - 1):+.1f} %; in every {every:.0f}th {1e3 * seldom:6.2f}: {100 * (seldom / plain - 1):+.1f} %", flush=True)  # fmt: skip
    return rows


def usual_step(steps):
    """A mean, as only some steps count norms, without the twentieth that took longest: others took the processor."""
    return statistics.fmean(sorted(steps)[: -(-len(steps) * 19 // 20)])


def target_rows(folder):
    """`begun`: with the plan of a profile, as a user begins; `nothing`: from the equal split, without one."""
    rows = []
    for name, (speeds, bandwidth) in list(CLUSTERS.items())[1 : None if FULL else 2]:
        for case, told in TARGETS.items():
            own = folder / f"{name} {case}".replace(" ", "-")
            own.mkdir()
            samples_of(told["model"], own / "m.motley", own)
            cluster = own / "cluster.toml"
            cluster.write_text(cluster_text(speeds, bandwidth))
            common = ["-m", own / "m.motley", "-C", cluster, *told["recipe"]]
            for planner in ("equal", "split"):
                motley("plan", *common, "--profiles", own / "p.db", "--global-batch", told["batch"], "--planner", planner, "-o", own / f"{planner}.json")
            ours = ["--adapt", "batch", "--batch-limits", f"{told['batch']}:{32 * told['batch']}"]
            ways = {
                "even": ["--plan", own / "equal.json", "--adapt", "none"],
                "split": ["--plan", own / "split.json", "--adapt", "none"],
                "begun": ["--plan", own / "split.json", "--profiles", own / "p.db", *ours],
                "nothing": ["--plan", own / "equal.json", "--profiles", own / "none.db", *ours],
            }
            for seed in range(5 if FULL else 3):
                for way, flags in ways.items():
                    run_dir = own / f"{way}{seed}"
                    motley("run", *common, *told["data"], "--shuffle", seed, "--run-dir", run_dir, "--resume", "never", "-q", *flags)
                    seconds, batches = seconds_to(run_dir, told["reached"])
                    rows.append({"kind": "target", "case": f"{case} on {name}, seed {seed}", "policy": way, "time_s": seconds,
                                 "steps": len(batches), "last_batch": batches[-1] or told["batch"]})  # fmt: skip
                    print(f"  {rows[-1]['case']:<48} {way:<8} {seconds or float('nan'):7.2f} s in {len(batches)} steps, at last of "
                          f"{rows[-1]['last_batch']}", flush=True)  # fmt: skip
    return rows


def replayed_rows(kinds):
    """Those of the C++ driver, which prints its own tables, with AdaptDL's module beside them."""
    output = BUILD / "bench/adapt_replayed.json"
    subprocess.run([BUILD / "bench_adapt", DATA, output, *kinds], check=True)
    rows = json.loads(output.read_text())["rows"]
    adaptdl_peer.add_peer(rows)
    return rows


REAL = {"plan": plan_rows, "run": run_rows, "norms": norms_rows, "target": target_rows}


def main():
    (BUILD / "bench").mkdir(exist_ok=True)
    kinds = sys.argv[1:] or [*REAL, "split", "change", "ranks", "ranks-slow", "jabas", "noise", "batch", "replay", "set"]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for kind, make in REAL.items():
            if kind in kinds:
                print(kind)
                rows += make(folder)
    if rest := [kind for kind in kinds if kind not in REAL]:
        rows += replayed_rows(rest)
    (BUILD / "bench/adapt.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
