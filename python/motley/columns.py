"""Tables as datasets: the rows of Parquet and Arrow files, by column. Needs pyarrow."""

from __future__ import annotations

import bisect

from motley.samples import DataError

ENDINGS = (".parquet", ".arrow", ".feather")


def open_table(path: str):
    """A map-style dataset of the file's rows: dicts of numpy arrays and numbers by column."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise DataError(f"{path}: reading it needs pyarrow: pip install pyarrow") from None
    try:
        if path.endswith(".parquet"):
            file = pq.ParquetFile(path, memory_map=True)
            counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            return Table(counts, file.read_row_group)
        source = pa.memory_map(path)
        try:
            file = pa.ipc.open_file(source)
        except pa.ArrowInvalid:  # as datasets of Hugging Face write it
            source.seek(0)
            return whole_table(pa.ipc.open_stream(source).read_all())
        batches = [file.get_batch(i) for i in range(file.num_record_batches)]  # mapped, not read
        return Table([batch.num_rows for batch in batches], batches.__getitem__)
    except (OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: {error}") from None


def whole_table(table):
    batches = table.to_batches()
    return Table([batch.num_rows for batch in batches], batches.__getitem__)


class Table:
    """Rows in groups, of which the last one read is kept."""

    def __init__(self, counts: list[int], read_group):
        self.ends, end = [], 0
        for count in counts:
            end += count
            self.ends.append(end)
        self.read_group = read_group
        self.kept = (-1, None)

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, row: int) -> dict:
        group = bisect.bisect_right(self.ends, row)
        if not 0 <= group < len(self.ends):
            raise IndexError(row)
        if self.kept[0] != group:
            self.kept = (group, self.read_group(group))
        table = self.kept[1]
        at = row - (self.ends[group - 1] if group else 0)
        return {name: plain(table.column(i)[at]) for i, name in enumerate(table.schema.names)}


def plain(scalar):
    """A value as what can be a tensor: a list's numbers as an array of their own type."""
    import pyarrow as pa

    if scalar.is_valid and pa.types.is_nested(scalar.type) and hasattr(scalar, "values"):
        return stack(scalar.values)
    if not scalar.is_valid or not pa.types.is_primitive(scalar.type):
        return scalar.as_py()
    return pa.array([scalar], scalar.type).to_numpy(zero_copy_only=False)[0]


def stack(values):
    """Lists of lists as one array; lists of unequal lengths stay lists."""
    import numpy as np
    import pyarrow as pa

    if not pa.types.is_nested(values.type):
        return values.to_numpy(zero_copy_only=False).copy()
    rows = [stack(value.values) for value in values]
    return np.stack(rows) if len({row.shape for row in rows}) == 1 else rows
