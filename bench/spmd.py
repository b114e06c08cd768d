"""Plans of operator-level sharding beside data parallelism and HAP, on clusters of built-in kinds.

Exports the models of examples/full_size.py (without weights; kept in build/bench/models) and runs
bench_spmd on them. Writes build/bench/spmd.json.
"""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
SOURCE = ROOT / "examples/full_size.py"


def export_models(names):
    """Files of models of examples/full_size.py, exported where they are not yet."""
    models = BUILD / "bench/models"
    models.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT / "examples")])
    exported = []
    for name in names:
        model = models / f"{name}.motley"
        exported.append(model)
        if model.exists() and model.stat().st_mtime > SOURCE.stat().st_mtime:
            continue
        print(f"{name}: export", file=sys.stderr)
        subprocess.run(
            [sys.executable, "-m", "motley.export", f"{SOURCE}:{name}", "-o", model, "--graph-only"],
            check=True, stdout=subprocess.DEVNULL, env=dict(os.environ, PYTHONPATH=path),
        )
    return exported


def main():
    names = re.search(r"^MODELS = \(([^)]*)\)", SOURCE.read_text(), re.M).group(1)
    models = export_models([each.strip() for each in names.split(",")])
    out = BUILD / "bench/spmd.json"
    return subprocess.run([BUILD / "bench_spmd", models[0].parent, out]).returncode


if __name__ == "__main__":
    sys.exit(main())
