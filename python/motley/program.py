"""The command `motley` of an installed package: the program that lies in it, with this interpreter for what needs Python."""

import os
import sys

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin")


def main() -> None:
    program = os.path.join(FOLDER, "motley")
    if not os.path.exists(program):
        sys.exit("motley: this is a checkout, not an installed package; its program is build/motley")
    os.environ.setdefault("MOTLEY_PYTHON", sys.executable)
    os.execv(program, [program, *sys.argv[1:]])
