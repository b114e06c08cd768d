"""Batches that follow the noise scale (adapt_batch_main.cc), and AdaptDL's module beside them (adaptdl_peer.py).

Prints tables and writes build/bench/adapt_batch.json. A kind may be named: noise, batch, replay, set.
"""

import json
import os
import pathlib
import subprocess
import sys

import adaptdl_peer

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("MOTLEY_BUILD", ROOT / "build"))
DATA = ROOT / os.environ.get("MOTLEY_DATA", "../shared/data")


def main():
    output = BUILD / "bench/adapt_batch.json"
    output.parent.mkdir(exist_ok=True)
    subprocess.run([BUILD / "bench_adapt_batch", DATA, output, *sys.argv[1:]], check=True)
    result = json.loads(output.read_text())
    adaptdl_peer.add_peer(result["rows"])
    output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
