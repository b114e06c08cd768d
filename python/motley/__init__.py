"""Motley's Python side: exports PyTorch models to model files, and trains them from a script.

import motley
motley.export(module, (x, y), "model.motley")
run = motley.Run("model.motley", cluster="cluster.toml", global_batch=64)
"""

import importlib

# Where each name lies: what loads samples must not import the exporter, which takes seconds.
NAMES = {
    "ExportError": "errors",
    "Exported": "exporter",
    "export": "exporter",
    "Evaluation": "run",
    "Run": "run",
    "RunError": "run",
    "StepResult": "run",
}

__all__ = list(NAMES)  # noqa: PLE0604


def __getattr__(name: str):
    if name not in NAMES:
        raise AttributeError(f"module 'motley' has no attribute '{name}'")
    return getattr(importlib.import_module(f"motley.{NAMES[name]}"), name)
