"""Rows of Parquet and Arrow files as samples: the numbers that were written."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from motley.columns import open_table
from motley.loader import main
from motley.samples import DataError

ROWS = 20
X = np.arange(ROWS * 6, dtype=np.float32).reshape(ROWS, 2, 3)
INPUTS = [{"name": "x", "dtype": "f32", "shape": [2, 3]}, {"name": "y", "dtype": "i64", "shape": []},
          {"name": "ids", "dtype": "i64", "shape": [5]}]  # fmt: skip


@pytest.fixture(scope="module")
def table():
    lists = [list(range(1 + i % 5)) for i in range(ROWS)]
    return pa.table({"y": pa.array(range(ROWS), pa.int32()), "text": ["a"] * ROWS, "x": X.tolist(), "ids": lists},
                    schema=pa.schema({"y": pa.int32(), "text": pa.string(), "x": pa.list_(pa.list_(pa.float32())),
                                      "ids": pa.list_(pa.int64())}))  # fmt: skip


def write_parquet(table, path):
    pq.write_table(table, path, row_group_size=7)


def write_arrow(table, path):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=6)


def write_stream(table, path):  # as datasets of Hugging Face lie on disk
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize(("name", "write"), [("t.parquet", write_parquet), ("t.arrow", write_arrow), ("s.arrow", write_stream)])
def test_rows_by_column(table, tmp_path, name, write):
    write(table, tmp_path / name)
    rows = open_table(str(tmp_path / name))
    assert len(rows) == ROWS
    for i in (0, 6, 7, 19, 3):
        row = rows[i]
        assert (row["y"], row["text"], row["ids"].tolist()) == (i, "a", list(range(1 + i % 5)))
        assert (row["x"] == X[i]).all()
    with pytest.raises(IndexError):
        rows[ROWS]


def test_short_rows_are_filled(table, tmp_path, capsys):
    from safetensors.torch import load_file

    write_parquet(table, tmp_path / "t.parquet")
    question = {"source": str(tmp_path / "t.parquet"), "inputs": INPUTS, "pad": {"ids": -1}, "seed": 0,
                "samples": [[0, 7], [0, 4]], "output": str(tmp_path / "out.safetensors")}  # fmt: skip
    assert main(["write", json.dumps(question)]) == 0, capsys.readouterr().out
    written = load_file(question["output"])
    assert (written["x0"].numpy() == X[[7, 4]]).all()
    assert written["x1"].tolist() == [7, 4]
    assert written["x2"].tolist() == [[0, 1, 2, -1, -1], [0, 1, 2, 3, 4]]


def test_what_is_no_table(tmp_path):
    path = tmp_path / "t.parquet"
    path.write_text("nothing")
    with pytest.raises(DataError, match="t.parquet"):
        open_table(str(path))
