"""The one error that an export ends with, and the function that raises it."""

from __future__ import annotations

from typing import NoReturn


class ExportError(Exception):
    """The model cannot be exported, and no file was written."""


def refuse(what: str, where: str, found: str, wanted: str, advice: str) -> NoReturn:
    """Raises ExportError: what is wrong, where, found and wanted, and one thing to try."""
    message = f"motley.export: {what}; {where}; found {found}, wanted {wanted}; try {advice}"
    raise ExportError(message) from None


AS_PARTS = "torch.view_as_real of it, and torch.view_as_complex in forward"


def refuse_complex(where: str, dtype, advice: str = AS_PARTS) -> NoReturn:
    """Of what is stored, given or differentiated: between operators numbers may be complex."""
    refuse("complex numbers are supported between operators only", where, str(dtype), "a real dtype", advice)
