"""Motley's Python side: exports PyTorch models to model files.

import motley
motley.export(module, (x, y), "model.motley")
"""

from motley.errors import ExportError
from motley.exporter import Exported, export

__all__ = ["ExportError", "Exported", "export"]
