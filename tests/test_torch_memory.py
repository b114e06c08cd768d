"""motley.torch finds how many samples a rank's memory holds before a step wants more than there is."""

import json
import os
import pathlib
import subprocess

import warm
from conftest import BUILD, ROOT

LIMIT = 1000 << 20
SCRIPT = pathlib.Path(__file__).with_name("torch_memory.py")


def test_what_fits_is_found_from_below():
    done = subprocess.run([warm.python(), SCRIPT, str(LIMIT)], capture_output=True, text=True, timeout=300,
                          env=os.environ | {"PYTHONPATH": str(ROOT / "python"), "MOTLEY_PROGRAM": str(BUILD / "motley")})  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    # No step takes more than there is, and the last ones take most of it: 12.3 KB a sample, what autograd keeps of two layers 24 times.
    assert max(peak for _, _, peak in rows) <= LIMIT, rows
    assert rows[-1][0] > 15000 and rows[-1][2] > 0.9 * LIMIT, rows
    assert all(samples <= most for samples, most, _ in rows)
