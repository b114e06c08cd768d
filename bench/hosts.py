"""Three machines from nothing to a trained model: what `make test-hosts` trains on, measured. Wants root.

Hosts are namespaces with 0.8, 0.4 and 0.2 of a core (control groups) and cables that tc limits
(tests/hosts/namespaces.py); a fresh user's home on each. Rows:

    link    what `probe` found of a cable: rate_bit, found_bit; latency_s and found_latency_s (of `ping`)
    train   a model at a rate: step_s, predicted_step_s; planned_step_s and lower_bound_s of the plan, split_bound_s
            of all splits of the batch; speed_bound_s (1 / sum(1 / t) of the steps that each host takes alone, which
            no exchange delays); equal_split_s; medians over rounds of turns
    exact   20 SGD steps on three hosts beside one device: max_loss_diff (relative), max_param_diff
    start   seconds from the command to the first step, plan and profiles there: first_step_s; on the coordinator
            alone, on the slowest host alone, on three, and on one machine of as many cores

Prints a table each and writes build/bench/hosts.json.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT / "tests"))

from hosts import namespaces

MOTLEY = BUILD / "motley"
CORES = {"a": 0.8, "b": 0.4, "c": 0.2}
OTHERS = {"a": "--exclude b:0 --exclude c:0", "b": "--exclude a:0 --exclude c:0", "c": "--exclude a:0 --exclude b:0"}
CASES = {
    "mlp": dict(function="mlp.py:model", data="digits.npz", flags="", batch=2800, steps=15),
    "cnn": dict(function="digits_cnn.py:model", data="digits.npz", flags="", batch=560, steps=15),
    "mlp-large": dict(function="mlp.py:model", data="digits.npz", flags="", batch=11200, steps=10),
    "cnn-large": dict(function="digits_cnn.py:model", data="digits.npz", flags="", batch=2240, steps=8),
    "gpt": dict(function="char_gpt.py:model", data="devils_dictionary.bin", flags="--seq 64", batch=112, steps=12),
}


def export(case, folder, name):
    subprocess.run([sys.executable, "-m", "motley.export", ROOT / "examples" / case["function"], "-o", folder / f"{name}.motley"],
                   check=True, capture_output=True, env=dict(os.environ, PYTHONPATH=str(ROOT / "python")))


def call(host, command):
    done = host.run(f"{MOTLEY} {command} --json -q", check=False, timeout=1200)
    if done.returncode != 0:
        sys.exit(f"{host.name}: motley {command}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def place(host, folder, name, case):
    shutil.copy(folder / f"{name}.motley", host.home())
    shutil.copy(ROOT / "examples/data" / case["data"], host.home())


def train(host, name, case, planner="auto", flags="", run_dir="run", steps=None):
    return call(host, f"run -m {name}.motley -C cluster.toml --data {case['data']} {case['flags']} --global-batch {case['batch']} "
                      f"--steps {steps or case['steps']} --planner {planner} --resume never --run-dir {run_dir} {flags}")


def ping_s(host, other):
    """Half of the median round trip that `ping`, or a TCP connection of Python's, sees."""
    script = ("import socket,time,sys\ns=socket.create_connection(('%s',22));s.recv(100)\n" % other.address +
              "t=[]\nfor i in range(40):\n b=time.perf_counter();c=socket.create_connection(('%s',22));t.append(time.perf_counter()-b);c.close()\n" % other.address +
              "print(sorted(t)[20]/2)")
    return float(host.run(f"{sys.executable} -c \"{script}\"").stdout)


def link_rows(hosts, rate):
    found = call(hosts["a"], "probe --hosts a,b,c -o cluster.toml")
    pairs = {tuple(link["between"]): link for link in found["links"]}
    seen = ping_s(hosts["b"], hosts["c"])
    return [{"what": "link", "case": "-".join(between) or "all", "rate_bit": rate * 1e6,
             "found_bit": link["bandwidth_bytes_per_s"] * 8, "latency_s": seen, "found_latency_s": link["latency_s"]}
            for between, link in pairs.items()]


def train_row(hosts, rate, name, case, rounds):
    lead, turns = hosts["a"], []
    for turn in range(rounds):
        print(f"{name} at {rate} Mbit/s: round {turn + 1} of {rounds} ...", file=sys.stderr)
        best = train(lead, name, case)
        alone = {host: train(lead, name, case, flags=flags)["step_s_median"] for host, flags in OTHERS.items()}
        again = train(lead, name, case)
        equal = train(lead, name, case, planner="equal")
        asked = f"plan -m {name}.motley -C cluster.toml --global-batch {case['batch']}"
        plan, split = call(lead, asked), call(lead, asked + " --planner split")
        step = statistics.mean([best["step_s_median"], again["step_s_median"]])
        turns.append({"step_s": step, "predicted_step_s": again["predicted_step_s"], "lower_bound_s": plan["lower_bound_s"],
                      "speed_bound_s": 1 / sum(1 / s for s in alone.values()), "equal_split_s": equal["step_s_median"],
                      "planned_step_s": plan["predicted_step_s"], "split_bound_s": split["lower_bound_s"],
                      "split": ":".join(f"{d['samples']}" for d in again["devices"])})
    median = {key: statistics.median(turn[key] for turn in turns) for key in turns[0] if key != "split"}
    return median | {"what": "train", "case": name, "rate_bit": rate * 1e6, "split": turns[-1]["split"], "rounds": turns,
                     "prediction_error": statistics.median(t["predicted_step_s"] / t["step_s"] - 1 for t in turns)}


def exact_row(hosts, name, case):
    from safetensors.numpy import load_file

    lead = hosts["a"]
    flags = "--lr 0.05"
    three = train(lead, name, case, planner="split", flags=flags, run_dir="exact-three", steps=20)
    one = train(lead, name, case, flags=flags + " " + OTHERS["a"], run_dir="exact-one", steps=20)
    weights = [load_file(lead.home() / f"exact-{which}/model.safetensors") for which in ("three", "one")]
    return {"what": "exact", "case": name, "split": ":".join(str(d["samples"]) for d in three["devices"]),
            "max_loss_diff": max(abs(x / y - 1) for x, y in zip(three["losses"], one["losses"])),
            "max_param_diff": max(float(abs(weights[0][key].astype(float) - weights[1][key]).max()) for key in weights[0])}


def first_step_s(host, command, log):
    """From the command to the first line of its log."""
    path = host.home() / log / "log.jsonl"
    begin = time.monotonic()
    process = subprocess.Popen(host.command(f"exec {MOTLEY} {command} --json -q"), stdout=subprocess.DEVNULL)
    while not path.exists() or not path.stat().st_size:
        if process.poll() is not None or time.monotonic() - begin > 120:
            sys.exit(f"{host.name}: {command}: no step")
        time.sleep(0.005)
    seconds = time.monotonic() - begin
    process.wait(timeout=60)
    return seconds


def start_rows(hosts, whole, name, case, rounds):
    lead = hosts["a"]
    where = {"the coordinator alone": (lead, OTHERS["a"]), "the slowest host alone": (lead, OTHERS["c"]), "three hosts": (lead, ""),
             "one machine, three devices": (whole, "")}
    seconds = {what: [] for what in where}
    for turn in range(rounds + 1):
        for what, (host, flags) in where.items():
            plan = f"plan-{what.replace(' ', '-').replace(',', '')}.json"
            if turn == 0:
                call(host, f"plan -m {name}.motley -C cluster.toml --global-batch {case['batch']} {flags} -o {plan}")
            log = f"start-{turn}-{len(what)}"
            took = first_step_s(host, f"run -m {name}.motley -C cluster.toml --plan {plan} --data {case['data']} {case['flags']} --steps 2 --run-dir {log}", log)
            if turn > 0:
                seconds[what].append(took)
    return [{"what": "start", "case": what, "first_step_s": statistics.median(each), "all_s": each} for what, each in seconds.items()]


def print_row(row):
    say = {
        "link": lambda r: f"link  {r['case']:<8}{r['rate_bit'] / 1e6:>7.0f} Mbit/s, found {r['found_bit'] / 1e6:>7.1f} ({r['found_bit'] / r['rate_bit'] - 1:+.1%}); "
                          f"latency {1e6 * r['latency_s']:.0f} us by TCP's handshake, found {1e6 * r['found_latency_s']:.0f} us",
        "train": lambda r: f"train {r['case']:<8}{r['rate_bit'] / 1e6:>7.0f} Mbit/s  {r['split']:<14}step {1e3 * r['step_s']:>6.1f} ms, predicted {1e3 * r['predicted_step_s']:>6.1f} "
                           f"({r['prediction_error']:+.1%}), bound {1e3 * r['lower_bound_s']:>6.1f} (plan {r['planned_step_s'] / r['lower_bound_s']:.2f}x), "
                           f"of splits {1e3 * r['split_bound_s']:>6.1f} ({r['planned_step_s'] / r['split_bound_s']:.2f}x), of speeds {1e3 * r['speed_bound_s']:>6.1f} (step {r['step_s'] / r['speed_bound_s']:.2f}x), equal split {1e3 * r['equal_split_s']:>6.1f}",
        "exact": lambda r: f"exact {r['case']:<8}{r['split']:<14}losses {r['max_loss_diff']:.1e}, parameters {r['max_param_diff']:.1e}",
        "start": lambda r: f"start {r['case']:<28}{r['first_step_s']:.2f} s to the first step",
    }
    print(say[row["what"]](row), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="mlp,cnn,cnn-large")
    parser.add_argument("--rates", default="200,1000", help="of the cables, Mbit/s")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--what", default="link,train,exact,start")
    options = parser.parse_args()
    if namespaces.missing():
        print(f"hosts: left out: {namespaces.missing()}")
        return
    what, rows = options.what.split(","), []

    def add(more):
        for row in more:
            rows.append(row)
            print_row(row)

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        cases = {case: CASES[case] for case in options.cases.split(",")}
        for case, each in cases.items():
            export(each, folder, case)
        for rate in map(int, options.rates.split(",")):
            with namespaces.Hosts(folder / f"net-{rate}", {**CORES, "m": sum(CORES.values())}, rate=f"{rate}mbit") as hosts:
                found = link_rows(hosts, rate)
                if "link" in what:
                    add(found)
                for case, each in cases.items():
                    place(hosts["a"], folder, case, each)
                    if "train" in what:
                        add([train_row(hosts, rate, case, each, options.rounds)])
                    if "exact" in what:
                        add([exact_row(hosts, case, each)])
                if "start" in what:
                    case = next(iter(cases))
                    place(hosts["m"], folder, case, cases[case])
                    (hosts["m"].home() / "cluster.toml").write_text(
                        'schema = "motley.cluster/1"\nname = "one"\n' + "".join(
                            f'[[node]]\nname = "{node}"\n  [[node.device]]\n  kind = "cpu"\n  speed = {cores}\n' for node, cores in CORES.items()))
                    add(start_rows(hosts, hosts["m"], case, cases[case], 2 * options.rounds + 1))
    (BUILD / "bench").mkdir(exist_ok=True, parents=True)
    (BUILD / "bench/hosts.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
