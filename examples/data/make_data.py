"""Makes the data files of this folder from their sources (README.md says where these come from).

python make_data.py digits digits.csv.gz     -> digits.npz
python make_data.py text devil.dict.dz       -> devils_dictionary.{txt,bin,vocab}
"""

from __future__ import annotations

import gzip
import re
import sys
from pathlib import Path

import numpy as np

TEXT_LENGTH = 200_000  # characters, cut at the end of an entry


def make_digits(source: str, folder: Path) -> None:
    """Pixels 0..16 become 0..1; the order of the samples is the source's."""
    with gzip.open(source, "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    x = (table[:, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    y = table[:, 64].astype(np.int64)
    np.savez_compressed(folder / "digits.npz", x=x, y=y)


def make_text(source: str, folder: Path) -> None:
    """The dictionary proper: ASCII, indents and right-aligned names with few spaces."""
    with gzip.open(source, "rt", encoding="latin-1") as file:
        text = file.read()
    text = text[text.index("ABASEMENT, n.") :]
    text = "".join(char for char in text if char == "\n" or " " <= char <= "~")
    text = re.sub(r" +\n", "\n", text)
    text = re.sub(r" {5,}", "    ", text)
    text = re.sub(r"\n{3,}", "\n\n", text)
    text = text[: text.rindex("\n\n", 0, TEXT_LENGTH) + 1]
    vocabulary = sorted(set(text))
    tokens = np.array([vocabulary.index(char) for char in text], dtype="<u2")
    (folder / "devils_dictionary.txt").write_text(text)
    (folder / "devils_dictionary.vocab").write_text("".join(vocabulary))
    tokens.tofile(folder / "devils_dictionary.bin")


if __name__ == "__main__":
    makers = {"digits": make_digits, "text": make_text}
    if len(sys.argv) != 3 or sys.argv[1] not in makers:
        sys.exit(__doc__)
    makers[sys.argv[1]](sys.argv[2], Path(__file__).parent)
