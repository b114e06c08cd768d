"""The main program of benches that train families of examples/families.py as draws of many seeds say
(parity.py, recipes.py): a row a family."""

import argparse
import json
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from conftest import BUILD, CLUSTER  # noqa: E402
from parity import Family, profile  # noqa: E402


def main(name, description, families, compare):
    """`compare(family, seeds)` gives a row: `case`, figures in the order of the table's columns, among them
    `beyond`, what is not as it should be; `seed`; `rounding`, which is not printed. Writes build/bench/NAME.json."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--draws", type=int, default=200, help="over all families")
    parser.add_argument("--families", nargs="*", default=families)
    options = parser.parse_args()
    output = BUILD / f"bench/{name}.json"
    output.parent.mkdir(exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        environment = dict(
            os.environ, PYTHONPATH=str(ROOT / "python"), OMP_NUM_THREADS="1",
            MOTLEY_PROFILES=str(folder / "profiles.db"),
        )  # fmt: skip
        cluster = folder / "three.toml"
        cluster.write_text(CLUSTER)
        profile(cluster, folder, environment)
        for i, case in enumerate(options.families):
            # Each family has seeds of its own, as the seed decides the shares too; named alone it has the same.
            seeds = range(families.index(case), options.draws, len(families))
            rows.append(compare(Family(case, folder / "families", cluster, environment), seeds))
            print_row(rows[-1], with_header=i == 0)
            # After each, as all of them take long.
            output.write_text(json.dumps({"rows": rows}, indent=2) + "\n")
    sys.exit(1 if any(row["beyond"] for row in rows) else 0)


def print_row(row, with_header):
    figures = {key: value for key, value in row.items() if key not in ("case", "seed", "rounding")}
    if with_header:
        print(f"{'family':<18}" + "".join(f" {key:>9}" for key in figures))
    cells = (f" {value:>9.1e}" if isinstance(value, float) else f" {value:>9}" for value in figures.values())
    print(f"{row['case']:<18}" + "".join(cells), flush=True)
