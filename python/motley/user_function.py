"""The model that `FILE.py:FUNCTION` of the user's makes."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import SimpleNamespace
from unittest import mock

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from motley.errors import refuse


def load_function(spec: str):
    """The function that `FILE.py:FUNCTION` names."""
    file, colon, function = spec.rpartition(":")
    if not colon or not file or not function:
        refuse("not a function", "command line", f'"{spec}"', "FILE.py:FUNCTION", "model.py:model")
    if not os.path.isfile(file):
        refuse("no such file", "command line", f'"{file}"', "a Python file", "its full path")
    module_spec = importlib.util.spec_from_file_location("motley_user_model", file)
    if module_spec is None:
        refuse(
            "not a Python file",
            "command line",
            f'"{file}"',
            "a name that ends in .py",
            "renaming it",
        )
    module = importlib.util.module_from_spec(module_spec)
    sys.modules["motley_user_model"] = module
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:  # whatever the user's file raises
        found = f"{type(error).__name__}: {error}"
        refuse(
            "the file does not run", file, found, "a file that can be imported", f"python {file}"
        )
    if not callable(getattr(module, function, None)):
        known = [name for name, value in vars(module).items() if is_model_function(value, module)]
        found = "functions " + (", ".join(sorted(known)) or "none")
        refuse(f'no function "{function}"', file, found, f'"{function}"', "one of them")
    return getattr(module, function)


def is_model_function(value, module) -> bool:
    return (
        callable(value)
        and not isinstance(value, type)
        and getattr(value, "__module__", "") == module.__name__
    )


def convertible_parameters():
    """Lets `.half()` and `.to()` change parameters that FakeTensorMode remembers by weak references, for which PyTorch
    would refuse to swap them: what is remembered serves conversions of real tensors alone."""
    return mock.patch.object(torch.utils, "weakref", SimpleNamespace(getweakrefs=lambda _: []))


def build_model(function, spec: str, graph_only: bool) -> tuple:
    """Calls the user's function, without memory for weights if only the graph is wanted.

    The result is (module, inputs, dimensions of the samples by input).
    """
    try:
        if graph_only:
            with FakeTensorMode(allow_non_fake_inputs=True), convertible_parameters():
                made = function()
        else:
            made = function()
    except Exception as error:  # whatever the user's function raises
        found = f"{type(error).__name__}: {error}"
        refuse("the function fails", spec, found, "(module, inputs)", "calling it in Python")
    is_pair = isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], nn.Module)
    if not is_pair or (len(made) == 3 and not isinstance(made[2], (dict, type(None)))):
        found = type(made).__name__
        if isinstance(made, tuple):
            found = "(" + ", ".join(type(item).__name__ for item in made) + ")"
        wanted, advice = "(module, inputs)", "return module, (x, y)"
        refuse("the function returns something else", spec, found, wanted, advice)
    return made if len(made) == 3 else (*made, None)
