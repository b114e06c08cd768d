"""What `motley explain` says would happen, beside what `motley plan` says of the edited cluster file.

Clusters of bench/scale.py's nodes (eight equal devices each, 100 Gbps; four kinds) with prices, BERT-12, planner
`split` on 64 and 256 devices, and `spmd` on 32. A row is a question: the seconds of the whole process that
answers it (elapsed_s), the step that it says and the one of a planning of the file that was edited by hand, which must
be equal to the last digit. The row "obvious" is a call without questions: its seconds, and how many it asked. Writes
build/bench/explain.json; ends with 5 where an answer is not the planner's.
"""

import json
import subprocess
import sys
import time

import scale
import spmd

KINDS, PRICES = 4, (32, 16, 6, 9)
SAMPLES = 1_000_000


def cluster_text(devices):
    text = scale.cluster_text(devices, KINDS)
    for node in range(devices // scale.DEVICES_OF_NODE):
        text = text.replace(f'name = "n{node}"\n', f'name = "n{node}"\nprice_per_hour = {PRICES[node % KINDS]}.0\n')
    return text


def node_table(text, node):
    """Where the table of a node begins, and where it ends."""
    begin = text.index(f'[[node]]\nname = "n{node}"\n')
    ends = [at for at in (text.find("[[node]]", begin + 1), text.find("[[link]]", begin + 1)) if at >= 0]
    return begin, min(ends)


def with_count(text, node, count):
    """Prices follow the number of devices."""
    begin, end = node_table(text, node)
    table = text[begin:end].replace("count = 8", f"count = {count}")
    price = PRICES[node % KINDS]
    return text[:begin] + table.replace(f"price_per_hour = {price}.0", f"price_per_hour = {price * count / 8!r}") + text[end:]


def with_memory(text, node, memory):
    begin, end = node_table(text, node)
    one, seven = ('[[node.device]]\nkind = "{0}"\nmemory = "{1}"\n', '[[node.device]]\nkind = "{0}"\ncount = 7\n')
    kind = scale.GPUS[node % KINDS]
    return text[:begin] + text[begin:end].replace(scale.kind_table(node % KINDS), one.format(kind, memory) + seven.format(kind)) + text[end:]


def without_node(text, node):
    begin, end = node_table(text, node)
    return text[:begin] + text[end:]


# What is asked, the file edited by hand, and samples a device.
QUESTIONS = (
    ("+1 a100-40g@n0", lambda text: with_count(text, 0, 9), 1),
    ("-n1:0", lambda text: with_count(text, 1, 7), 1),
    ("-n2", lambda text: without_node(text, 2), 1),
    ("link all x2", lambda text: text.replace("100Gbps", "200Gbps"), 1),
    ("memory n0:0 24GiB", lambda text: with_memory(text, 0, "24GiB"), 1),
    ("batch x2", lambda text: text, 2),
)


def call(*arguments):
    start = time.monotonic()
    said = subprocess.run([spmd.BUILD / "motley", *map(str, arguments), "--json", "-q"], check=True, stdout=subprocess.PIPE)
    return json.loads(said.stdout), time.monotonic() - start


def rows_of(model, devices, planner, folder):
    file, edited, plan, batch = folder / "explain.toml", folder / "explain-edited.toml", folder / "explain-plan.json", 8 * devices
    file.write_text(cluster_text(devices))
    common = ["-m", model, "--profiles", folder / "explain.db", "--planner", planner]
    call("plan", "-C", file, *common, "--global-batch", batch, "-o", plan)
    row = {"model": model.stem, "devices": devices, "planner": planner}
    for what, edit, factor in QUESTIONS:
        said, elapsed = call("explain", plan, "-C", file, *common, "--what-if", what, "--samples", SAMPLES)
        edited.write_text(edit(file.read_text()))
        again, _ = call("plan", "-C", edited, *common, "--global-batch", factor * batch, "--samples", SAMPLES)
        answer = said["what_if"][0]
        yield row | {"what": what, "elapsed_s": elapsed, "step_s": answer["step_s"], "replanned_step_s": again["predicted_step_s"],
                     "cost_per_epoch": answer["cost_per_epoch"], "replanned_cost_per_epoch": again["cost_per_epoch"]}
    said, elapsed = call("explain", plan, "-C", file, *common)
    yield row | {"what": "obvious", "elapsed_s": elapsed, "questions": len(said["what_if"]),
                 "step_s": said["planned_again"]["step_s"], "replanned_step_s": said["step_s"]}


def main():
    folder = spmd.BUILD / "bench"
    bert = spmd.export_models(["bert"])[0]
    print(f"{'devices':>7} {'planner':<6} {'what if':<20} {'seconds':>8} {'step ms':>9} {'replanned':>9} {'an epoch':>9}")
    rows, wrong = [], 0
    for devices, planner in ((64, "split"), (256, "split"), (32, "spmd")):
        for row in rows_of(bert, devices, planner, folder):
            rows.append(row)
            is_equal = row["step_s"] == row["replanned_step_s"] and row.get("cost_per_epoch") == row.get("replanned_cost_per_epoch")
            wrong += not is_equal
            what = f"{row['questions']} obvious ones" if "questions" in row else row["what"]
            epoch = f"{row['cost_per_epoch']:>9.2f}" if "cost_per_epoch" in row else f"{'':>9}"
            print(f"{devices:>7} {planner:<6} {what:<20} {row['elapsed_s']:>8.2f} {1e3 * row['step_s']:>9.3f}"
                  f" {1e3 * row['replanned_step_s']:>9.3f} {epoch}{'' if is_equal else '  NOT EQUAL'}", flush=True)
    (folder / "explain.json").write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 5 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
