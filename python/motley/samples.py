"""Samples of a Python dataset as the bytes of a model's inputs.

A source is what a user's function returns: a map-style dataset (`len`, `[i]`), a DataLoader, whose
dataset it is, or something to iterate over, whose order is the order of training. `Source` reads
samples by epoch and number, with transforms that draw by seed, epoch and number; `Inputs` checks one
against the model's inputs and writes it where it is wanted.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from collections.abc import Iterator, Mapping

import torch

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}
ALIGNMENT = 64  # bytes: inputs begin at multiples, as motley/data/dataset.h (input_offsets) has it


class DataError(Exception):
    """What is wrong with the data, as the user is to read it."""


@dataclasses.dataclass(frozen=True)
class Input:
    """One input of the model: a sample of it, without the dimension of samples."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    pad: float | None  # what fills a sample that is too short; none: it is refused

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.itemsize

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


def describe(dtype: torch.dtype, shape) -> str:
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


def widens(found: torch.dtype, wanted: torch.dtype) -> bool:
    """Does every number keep its value? True of integers in wider ones and of floats likewise."""
    if found == wanted:
        return True
    if found == torch.bool or wanted == torch.bool:
        return False
    alike = found.is_floating_point == wanted.is_floating_point
    return alike and torch.promote_types(found, wanted) == wanted


class Inputs:
    """The inputs of a model, side by side in a slot of bytes."""

    def __init__(self, described: list[dict], pads: dict[str, float]):
        for name in pads:
            if name and name not in [each["name"] for each in described]:
                known = ", ".join(each["name"] for each in described)
                raise DataError(f"--pad: the model has no input '{name}'; its inputs are {known}")
        self.inputs = [
            Input(
                each["name"],
                DTYPES[each["dtype"]],
                tuple(each["shape"]),
                pads.get(each["name"], pads.get("")),
            )
            for each in described
        ]
        *self.offsets, end = self.places(1)
        self.slot_bytes = max(end, ALIGNMENT)

    def places(self, samples: int) -> list[int]:
        """Where each input begins, one after the other, so many samples each, and where they end."""
        ends = [0]
        for each in self.inputs:
            ends.append(ends[-1] + -(-samples * each.bytes // ALIGNMENT) * ALIGNMENT)
        return ends

    def tensors(self, sample) -> list[torch.Tensor]:
        """One tensor an input, of its dtype and shape."""
        return [self._fit(each, value) for each, value in zip(self.inputs, self._wanted(sample), strict=True)]

    def write(self, sample, memory, offset: int) -> None:
        for each, begin, value in zip(self.inputs, self.offsets, self.tensors(sample), strict=True):
            if each.elements == 0:
                continue
            place = torch.frombuffer(
                memory, dtype=each.dtype, count=each.elements, offset=offset + begin
            )
            place.view(each.shape).copy_(value)

    def parts(self, sample) -> list:
        """The values of a sample, or a batch, in order; of a dict those that the inputs name."""
        names = [each.name for each in self.inputs]
        if isinstance(sample, Mapping):
            missing = [name for name in names if name not in sample]
            if missing:
                found = ", ".join(map(str, sample)) or "nothing"
                raise DataError(f"no '{missing[0]}'; found {found}; the model's inputs are {', '.join(names)}")
            return [sample[name] for name in names]
        return flatten(sample)

    def _wanted(self, sample) -> list:
        parts, names = self.parts(sample), [each.name for each in self.inputs]
        if len(parts) != len(names):
            raise DataError(f"found {len(parts)} values, wanted {len(names)}: {', '.join(names)}")
        return parts

    @staticmethod
    def _fit(each: Input, value) -> torch.Tensor:
        wanted = f"wanted {describe(each.dtype, each.shape)}"
        if isinstance(value, float) and each.dtype.is_floating_point:
            value = torch.tensor(value, dtype=each.dtype)  # Python's floats have no width to lose
        try:
            tensor = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError):
            found = f"{type(value).__module__}.{type(value).__name__}"
            raise DataError(f"input '{each.name}': found {found}, {wanted}; let the dataset's transform make a tensor of it") from None
        tensor = tensor.detach()
        found = f"input '{each.name}': found {describe(tensor.dtype, tensor.shape)}, {wanted}"
        if not widens(tensor.dtype, each.dtype):
            raise DataError(f"{found}; convert it in the dataset")
        if tuple(tensor.shape) == each.shape:
            return tensor.to(each.dtype)
        same_rank = tensor.dim() == len(each.shape)
        if not same_rank or any(have > want for have, want in zip(tensor.shape, each.shape, strict=True)):
            raise DataError(f"{found}; give it this shape in the dataset")
        if each.pad is None:
            raise DataError(f"{found}; --pad {each.name}=VALUE fills samples that are shorter")
        whole = torch.full(each.shape, each.pad, dtype=each.dtype)
        whole[tuple(slice(size) for size in tensor.shape)] = tensor
        return whole


def flatten(sample) -> list:
    """Values of nested tuples and lists of values; a list of plain numbers is one value."""
    if isinstance(sample, tuple):
        return [value for part in sample for value in flatten(part)]
    if isinstance(sample, list) and not all(isinstance(part, (int, float)) for part in sample):
        return [value for part in sample for value in flatten(part)]
    return [sample]


class Source:
    """Samples of what the user's function returns."""

    def __init__(self, make, name: str, seed: int):
        from torch.utils.data import DataLoader

        self.make, self.name, self.seed = make, name, seed
        self.worker_init = None
        made = make()
        if isinstance(made, DataLoader):  # batches, order and processes are Motley's
            self.worker_init = made.worker_init_fn
            made = made.dataset
        self.data = made
        self.is_stream = not hasattr(made, "__getitem__") or isinstance(
            made, torch.utils.data.IterableDataset
        )
        if self.is_stream and not hasattr(made, "__iter__"):
            raise DataError(
                f"{name}: found {type(made).__name__}, wanted a dataset (len and [i]), a DataLoader or "
                "something to iterate over"
            )
        if not self.is_stream and not hasattr(made, "__len__"):
            raise DataError(f"{name}: {type(made).__name__} has no length (__len__)")
        self._stream: Iterator | None = None
        self._next = 0  # the stream's next sample

    def samples(self) -> int | None:
        """How many; none of a stream, which says it by ending."""
        return None if self.is_stream else len(self.data)

    def read(self, epoch: int, number: int):
        """Sample `number`, as epoch `epoch` sees it. A stream is read forwards only, from the
        beginning of the training: its numbers go on over all epochs."""
        if self.is_stream:
            return self._read_stream(number)
        self._seed(epoch, number)
        try:
            return self.data[number]
        except IndexError as error:
            if number >= len(self.data):
                raise
            raise DataError(
                f"IndexError: {error}; its length is said to be {len(self.data)}"
            ) from error

    def _read_stream(self, number: int):
        if number < self._next:
            raise DataError(f"the stream is past sample {number}")
        while True:
            began = None
            if self._stream is None:
                began = self._next
                self._seed(0, began)
                self._stream = iter(self.data)
                if self._stream is self.data and began > 0:  # a generator, used up
                    self._stream = iter(self.make())
            for sample in self._stream:
                self._next += 1
                if self._next - 1 == number:
                    return sample
            if self._next == began:
                raise DataError(f"the stream gave nothing when it was begun at sample {began}")
            self._stream = None  # it begins again

    def _seed(self, epoch: int, number: int) -> None:
        seed = mix(self.seed, epoch, number)
        random.seed(seed)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed also queues it for all GPUs
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(seed % 2**32)


def mix(*numbers: int) -> int:
    """A seed of 63 bits that depends on every bit of the numbers (SplitMix64's finaliser)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) % 2**64
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ state >> 27) * 0x94D049BB133111EB % 2**64
        state ^= state >> 31
    return state >> 1
