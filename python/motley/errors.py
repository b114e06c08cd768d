"""The one error that an export ends with, and the function that raises it."""

from __future__ import annotations

from typing import NoReturn


class ExportError(Exception):
    """The model cannot be exported, and no file was written."""


def refuse(what: str, where: str, found: str, wanted: str, advice: str) -> NoReturn:
    """Raises ExportError: what is wrong, where, found and wanted, and one thing to try."""
    message = f"motley.export: {what}; {where}; found {found}, wanted {wanted}; try {advice}"
    raise ExportError(message) from None


def refuse_complex(where: str, dtype) -> NoReturn:
    advice = "two real tensors; in place of an FFT products with cosines and sines"
    refuse("complex numbers are not supported", where, str(dtype), "a real dtype", advice)
