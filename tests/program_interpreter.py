"""Runs a printed program (docs/formats/program.md) of any number of ranks with PyTorch, in one
process and in lockstep: the reference for what the text means.

Transfers run as late as the waits allow, so that a missing wait gives a wrong result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch
from motley.graph import DTYPES
from motley.interpret import call, evaluate_size, keyword
from motley.parse import Keyword, Number, Ref, parse_argument, split_top
from motley.philox import Stream, place_index

SEED, STEP = 20, 3  # of what is drawn
DTYPE_OF = {name: dtype for dtype, name in DTYPES.items()}
BUFFER = re.compile(
    r'buffer %(\d+): (\w+) (\w+)\[(.*?)\](?: "(.*?)")?(?: view %(\d+))?'
    r"(?: part (\d+) (\d+) (\d+) (\d+)(?: copy)?)?"
)
INSTRUCTION = re.compile(
    r"(compute|transfer|peer) \^(\d+): (?:(.*?) = )?([\w:.]+)\((.*)\)"
    r"(?: group (\d+))?( list)?(?: wait ((?:\^\d+ ?)+))?( origin \d+)?(?: ?\"(.*?)\")?"
    r"(?: ?free ((?:%\d+ ?)+))?"
)

DIGITS = re.compile(r"\d+")


@dataclass
class Buffer:
    kind: str
    dtype: str
    shape: list[int]
    name: str
    part: list[int] | None  # before, begin, extent, after

    def tensor(self) -> str:
        """Of a mirror the name of its original."""
        return self.name.split("/", 2)[2] if self.kind == "mirror" else self.name

    def take(self, whole: torch.Tensor) -> torch.Tensor:
        """What a device keeps of the whole tensor."""
        if self.part is None:
            return whole.clone()
        before, begin, extent, after = self.part
        own = int(np.prod(self.shape)) // (before * after)
        seen = whole.reshape(before, extent, after).narrow(1, begin, own)
        return seen.reshape(self.shape).clone()


@dataclass
class Instruction:
    id: int
    lane: str
    op: str
    arguments: list
    outputs: list[int]
    waits: list[int]
    frees: list[int]
    group: int | None


@dataclass
class Device:
    samples: int
    first: int  # in a micro-batch
    global_batch: int
    micro_batches: int
    buffers: dict[int, Buffer] = field(default_factory=dict)
    instructions: list[Instruction] = field(default_factory=list)


@lru_cache(maxsize=100_000)
def parse_arguments(text: str) -> list:
    """Devices, and programs of a model, have most of them in common; nobody changes them."""
    return [parse_argument(item) for item in split_top(text)]


def parse_program(text: str) -> tuple[list[list[int]], list[Device]]:
    """The ranks of each group, and the devices."""
    groups, devices = [], []
    header = text.splitlines()[1].split()
    sizes = [int(header[5]), int(header[7]) if len(header) > 6 else 1]
    for line in text.splitlines()[2:]:
        kind = line.partition(" ")[0]
        if kind == "device":
            words = line.split(" ")
            devices.append(Device(int(words[3]), int(words[5]), *sizes))
        elif kind == "buffer":
            match = BUFFER.fullmatch(line)
            shape = [int(size) for size in match[4].split(", ")] if match[4] else []
            part = [int(match[i]) for i in range(7, 11)] if match[7] else None
            devices[-1].buffers[int(match[1])] = Buffer(
                match[2], match[3], shape, match[5] or "", part
            )
        elif kind == "group":
            groups.append([int(rank) for rank in line.split(":")[1].split()])
        else:
            match = INSTRUCTION.fullmatch(line)
            assert match, line
            outputs, waits, frees = ([int(id) for id in DIGITS.findall(match[group] or "")] for group in (3, 8, 11))
            group = int(match[6]) if match[6] else None
            devices[-1].instructions.append(
                Instruction(int(match[2]), match[1], match[4], parse_arguments(match[5]), outputs, waits, frees, group)
            )
    return groups, devices


def prepare(gradient, factor, clip):
    """A gradient as an update takes it."""
    gradient = gradient if factor is None else gradient * factor.item()
    return gradient.clone() if clip is None else gradient.clamp(-clip, clip)


def mark(states, gradients):
    for number, each in enumerate(states):
        for state, gradient in zip(each, gradients, strict=False):
            same = state.numel() == gradient.numel()
            state.copy_(gradient.reshape(state.shape) + number if same else gradient.sum() + number)


def adafactor_direction(gradient):
    eps = torch.finfo(gradient.dtype).eps
    if gradient.dim() > 1:
        rows = gradient.square().mean(-1, keepdim=True)
        columns = gradient.square().mean(-2, keepdim=True)
        estimate = rows @ columns / rows.mean(-2, keepdim=True).clamp(min=eps)
    else:
        estimate = gradient.square()
    direction = estimate.clamp(min=eps * eps).rsqrt() * gradient
    return direction / max(1.0, direction.square().mean().sqrt().item())


class FirstLion:
    """The first step: momentum is zero."""

    def __init__(self, leaf, lr, decay):
        self.leaf, self.lr, self.decay = leaf, lr, decay

    def step(self):
        with torch.no_grad():
            self.leaf *= 1 - self.lr * self.decay
            self.leaf -= self.lr * self.leaf.grad.sign()


# By kind of optimizer: of a parameter, rate, decay and constants (docs/formats/program.md).
FIRST_STEPS = {
    "sgd": lambda p, lr, wd, c: torch.optim.SGD(
        [p], lr=lr, momentum=c[0], nesterov=bool(c[1]), weight_decay=wd
    ),
    "adam": lambda p, lr, wd, c: torch.optim.Adam(
        [p], lr=lr, betas=tuple(c[:2]), eps=c[2], weight_decay=wd
    ),
    "adamw": lambda p, lr, wd, c: torch.optim.AdamW(
        [p], lr=lr, betas=tuple(c[:2]), eps=c[2], weight_decay=wd
    ),
    "adagrad": lambda p, lr, wd, c: torch.optim.Adagrad([p], lr=lr, eps=c[0], weight_decay=wd),
    "rmsprop": lambda p, lr, wd, c: torch.optim.RMSprop(
        [p], lr=lr, alpha=c[0], eps=c[1], momentum=c[2], weight_decay=wd
    ),
    "lion": lambda p, lr, wd, c: FirstLion(p, lr, wd),
}


class Machine:
    """One rank: its buffers."""

    def __init__(self, rank: int, device: Device, tensors: dict[str, torch.Tensor], inputs):
        self.rank, self.device = rank, device
        stride, samples = (size // device.micro_batches for size in (device.global_batch, device.samples))
        firsts = [m * stride + device.first for m in range(device.micro_batches)]
        self.inputs = [torch.cat([value[f : f + samples] for f in firsts]) for value in inputs]
        self.values: dict[int, torch.Tensor] = {}
        self.loss = None
        self.stop = None
        for id, buffer in device.buffers.items():
            if buffer.kind in ("parameter", "model_buffer", "constant"):
                self.values[id] = buffer.take(tensors[buffer.name])
            elif buffer.kind == "mirror" and buffer.tensor() in tensors:
                self.values[id] = buffer.take(tensors[buffer.tensor()])
            elif buffer.kind in ("state", "mirror"):
                self.values[id] = self.new_state(buffer, tensors)

    def new_state(self, buffer: Buffer, tensors) -> torch.Tensor:
        dtype = DTYPE_OF[buffer.dtype]
        if buffer.name.endswith("/master"):
            return buffer.take(tensors[buffer.tensor().removesuffix("/master")]).to(dtype)
        return torch.zeros(buffer.shape, dtype=dtype)

    def named(self) -> dict[str, torch.Tensor]:
        kinds = ("parameter", "model_buffer")
        buffers = self.device.buffers.items()
        return {b.name: self.values[id] for id, b in buffers if b.kind in kinds}

    def named_buffers(self) -> dict[str, Buffer]:
        kinds = ("parameter", "model_buffer")
        return {b.name: b for b in self.device.buffers.values() if b.kind in kinds}

    def argument(self, argument):
        if isinstance(argument, Ref):
            return self.values[argument.id]
        if isinstance(argument, list):
            return [self.argument(item) for item in argument]
        if isinstance(argument, Number):
            return evaluate_size(argument.text, {})
        return keyword(argument) if isinstance(argument, Keyword) else argument

    def run(self, instruction: Instruction) -> None:
        arguments = [self.argument(item) for item in instruction.arguments]
        space, _, name = instruction.op.partition("::")
        own = getattr(self, name, None) if space == "motley" else None
        if own:
            results = own(instruction, *arguments)
        else:
            results = call(instruction.op, arguments)
        if results is None:
            results = []
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        for id, result in zip(instruction.outputs, results, strict=True):
            self.store(id, result, instruction.op)
        for id in instruction.frees:
            self.values.pop(id, None)

    def store(self, id: int, tensor, op: str) -> None:
        buffer = self.device.buffers[id]
        if buffer.dtype == "none":
            return
        assert list(tensor.shape) == buffer.shape, (op, id, tensor.shape, buffer)
        assert tensor.dtype == DTYPE_OF[buffer.dtype], (op, id, tensor.dtype, buffer)
        self.values[id] = tensor

    def load(self, _, index):
        return self.inputs[index]

    def tangent(self, instruction, scaling=None, initial=1.0):
        if scaling is not None:  # the first step
            scaling.copy_(torch.tensor([initial, 0.0, 0.0]))
        dtype = DTYPE_OF[self.device.buffers[instruction.outputs[0]].dtype]
        return torch.tensor(initial, dtype=dtype)

    def ballot(self, _):
        return [torch.ones(1)]

    def stop_request(self, _):
        return torch.full((1,), float(self.rank == 0))

    def random(self, instruction, distribution, draw, *place):
        buffer = self.device.buffers[instruction.outputs[0]]
        index = place_index(int(np.prod(buffer.shape)), *place)
        numbers = Stream(SEED, STEP, draw, index).numbers(distribution, DTYPE_OF[buffer.dtype])
        return numbers.reshape(buffer.shape)

    def dropout(self, _, x, p, draw, *place):
        index = place_index(x.numel(), *place)
        mask = Stream(SEED, STEP, draw, index).numbers("uniform", torch.float32).reshape(x.shape) >= p
        return x * mask / (1 - p), mask

    def label_count(self, _, target, weight, ignored):
        counted = target != ignored
        if weight is None:
            return counted.sum().float()
        return weight[target.where(counted, 0)].mul(counted).sum().float()

    def batch_norm_sums(self, _, x):
        wide = x.double().transpose(0, 1).flatten(1)
        return torch.stack([wide.sum(1), (wide * wide).sum(1)])

    def batch_norm(self, _, x, weight, bias, running_mean, running_var, sums, count, momentum, eps):
        mean = sums[0] / count
        variance = sums[1] / count - mean * mean
        rstd = (variance + eps).rsqrt()
        shape = [1, -1] + [1] * (x.dim() - 2)
        out = (x - mean.view(shape)) * rstd.view(shape)
        if weight is not None:
            out = out * weight.view(shape) + bias.view(shape)
        unbiased = variance * count / max(count - 1, 1)
        updated = [
            None if old is None else (old * (1 - momentum) + momentum * new).to(old.dtype)
            for old, new in ((running_mean, mean), (running_var, unbiased))
        ]
        return out.to(x.dtype), mean.to(x.dtype), rstd.to(x.dtype), *updated

    def batch_norm_backward_sums(self, _, grad, x, mean, rstd):
        shape = [1, -1] + [1] * (x.dim() - 2)
        wide = grad.double()
        normal = (x.double() - mean.view(shape)) * rstd.view(shape)
        return torch.stack([v.transpose(0, 1).flatten(1).sum(1) for v in (wide, wide * normal)])

    def batch_norm_backward(self, _, grad, x, weight, mean, rstd, sums, count):
        shape = [1, -1] + [1] * (x.dim() - 2)
        normal = (x.double() - mean.view(shape)) * rstd.view(shape)
        means = [(row / count).view(shape) for row in sums]
        scale = rstd if weight is None else rstd * weight
        grad_x = (grad - means[0] - normal * means[1]) * scale.view(shape)
        return grad_x.to(x.dtype), sums[1].to(x.dtype), sums[0].to(x.dtype)

    def pack(self, _, values):
        assert len({value.dtype for value in values}) == 1
        return torch.cat([value.reshape(-1) for value in values])

    def unpack(self, instruction, flat):
        shapes = [self.device.buffers[id].shape for id in instruction.outputs]
        pieces = flat.split([int(np.prod(shape)) for shape in shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]

    def cut(self, _, x, before, extents, after):
        parts = x.reshape(before, sum(extents), after).split(extents, 1)
        return torch.cat([part.reshape(-1) for part in parts])

    def join(self, instruction, flat, before, extents, after):
        parts = flat.split([before * extent * after for extent in extents])
        seen = [part.view(before, extent, after) for part, extent in zip(parts, extents)]
        return torch.cat(seen, 1).view(self.device.buffers[instruction.outputs[0]].shape)

    def part(self, instruction, x, before, begin, after):
        shape = self.device.buffers[instruction.outputs[0]].shape
        row = before * after
        seen = x.reshape(before, x.numel() // row if row else 0, after)
        extent = int(np.prod(shape)) // row if row else 0
        return seen.narrow(1, begin if row else 0, extent).reshape(shape).clone()

    def update(self, _, kind, parameters, gradients, *rest):
        """The first step: states are as torch.optim begins with them. Of what they become, which nobody reads,
        there are marks."""
        *states, factor, scaling, clip, lr, decay, constants = rest
        mark(states, gradients)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            assert parameter.shape == gradient.shape
            leaf = torch.nn.Parameter(parameter.clone())
            leaf.grad = prepare(gradient.to(leaf.dtype), factor, clip)
            FIRST_STEPS[kind](leaf, lr, decay, constants).step()
            parameter.copy_(leaf.detach())

    def direction(self, _, kind, parameters, gradients, *rest):
        *states, factor, scaling, clip, lr, decay, constants = rest
        mark(states, gradients)
        found = []
        for parameter, gradient in zip(parameters, gradients, strict=True):
            gradient = prepare(gradient.to(parameter.dtype), factor, clip)
            if kind == "lamb":  # the first step's means are the gradient and its square
                found.append(gradient / (gradient.abs() + constants[2]) + decay * parameter)
            elif kind == "adafactor":
                found.append(adafactor_direction(gradient))
            else:
                momentum, nesterov = constants
                buffer = (1 - momentum) * gradient
                found.append(gradient.lerp(buffer, momentum) if nesterov else buffer)
        return found

    def orthogonalize(self, _, x):
        from torch.optim._muon import _zeropower_via_newtonschulz

        return _zeropower_via_newtonschulz(x, (3.4445, -4.7750, 2.0315), 5, 1e-7).to(x.dtype)

    def apply(self, _, kind, parameters, directions, extents, parameter_squares, direction_squares, *rest):
        *_, lr, decay, constants = rest
        for i, (parameter, direction) in enumerate(zip(parameters, directions, strict=True)):
            rows, columns = extents[2 * i : 2 * i + 2]
            if kind == "muon":
                length = lr * max(1.0, rows / columns) ** 0.5
            elif kind == "adafactor":
                rms = (parameter_squares[i].item() / (rows * columns)) ** 0.5
                length = min(lr, 1.0) * max(constants[0], rms)
            else:
                squares = parameter_squares[i].item(), direction_squares[i].item()
                length = lr * (squares[0] / squares[1]) ** 0.5 if all(squares) else lr
            if kind != "lamb":
                parameter *= 1 - lr * decay
            parameter -= length * direction

    def square_sums(self, _, tensors):
        return torch.stack([tensor.double().square().sum() for tensor in tensors])

    def scaled_square_sums(self, _, tensors, moments, beta2, eps):
        # By the second moments of the steps before; this one is step 0, of which there are none.
        return torch.full([len(tensors)], float("nan"), dtype=torch.float64)

    def gradient_factor(self, _, scaling, squares, most, growth, backoff, interval, initial):
        scale = 1.0 if scaling is None else scaling[0].item() or initial  # in the first step
        norm = float(sum(each.sum() for each in squares)) ** 0.5 / scale
        factor = (1.0 if most is None else min(1.0, most / (norm + 1e-6))) / scale
        return [torch.tensor([each], dtype=torch.float64) for each in (factor, norm)]

    def average(self, _, averages, parameters, decay):
        for average, parameter in zip(averages, parameters, strict=True):
            average.copy_(parameter)

    def assign(self, _, targets, values):
        for target, value in zip(targets, values, strict=True):
            target.copy_(value)

    def report(self, _, loss, stop, norm, metrics, squares=(), samples=(), *own):
        self.squares = [float(sum(each.sum() for each in sums)) for sums in (*own, squares)]
        self.metrics = [float(metric) for metric in metrics]
        self.loss, self.stop = float(loss), float(stop)
        self.norm = None if norm is None else float(norm)


class Rank:
    """Where one rank is in its instructions, and by lane (of the peer lane by peer and direction) the
    exchanges that it has started and that are not over."""

    def __init__(self, number: int, machine: Machine):
        self.number, self.machine, self.next = number, machine, 0
        self.pending: dict[tuple, list[Instruction]] = {}

    def strand(self, instruction: Instruction) -> tuple:
        if instruction.lane != "peer":
            return (instruction.lane,)
        return (instruction.op, int(instruction.arguments[-1]))

    def advance(self) -> None:
        """Runs what needs no exchange that is under way."""
        instructions = self.machine.device.instructions
        while self.next < len(instructions):
            instruction = instructions[self.next]
            if instruction.lane != "compute":
                self.pending.setdefault(self.strand(instruction), []).append(instruction)
            elif self.waits(instruction):
                return
            else:
                self.machine.run(instruction)
            self.next += 1

    def waits(self, instruction: Instruction) -> list[Instruction]:
        """Exchanges under way that must be over first."""
        instructions = self.machine.device.instructions
        found = []
        for id in instruction.waits:
            strand = self.pending.get(self.strand(instructions[id]), [])
            found += [each for each in strand if each.id <= id]
        return found

    def ready(self, strand: tuple) -> Instruction | None:
        """The next of a lane, if it may begin."""
        queue = self.pending.get(strand)
        return queue[0] if queue and not self.waits(queue[0]) else None


def find_exchanges(ranks: list[Rank], groups: list[list[int]]) -> list[list[tuple[Rank, tuple]]]:
    """All that can take place now: ranks and their lanes."""
    found = []
    for rank in ranks:
        for strand, queue in rank.pending.items():
            instruction = rank.ready(strand)
            if instruction is None or not queue:
                continue
            if strand[0] == "transfer":
                members = [ranks[number] for number in groups[instruction.group]]
                heads = [member.ready(("transfer",)) for member in members]
                if members[0] is rank and all(head and head.group == instruction.group for head in heads):
                    found.append([(member, ("transfer",)) for member in members])
            elif strand[0] == "motley::send":
                receiver, back = ranks[strand[1]], ("motley::receive", rank.number)
                if receiver.ready(back):
                    found.append([(rank, strand), (receiver, back)])
    return found


def run_program(text: str, tensors: dict[str, torch.Tensor], inputs) -> list[Machine]:
    """One step on all ranks."""
    groups, devices = parse_program(text)
    ranks = [Rank(number, Machine(number, device, tensors, inputs)) for number, device in enumerate(devices)]
    with torch.no_grad():
        while True:
            for rank in ranks:
                rank.advance()
            waiting = [rank for rank in ranks if rank.next < len(rank.machine.device.instructions)]
            possible = find_exchanges(ranks, groups)
            if not waiting and not possible:
                break
            assert possible, "the ranks wait for each other"
            # What somebody waits for before what may wait.
            wanted = [
                each
                for each in possible
                for rank, strand in each
                if rank in waiting
                and any(w is rank.pending[strand][0] for w in rank.waits(rank.machine.device.instructions[rank.next]))
            ]
            perform([(rank, rank.pending[strand].pop(0)) for rank, strand in (wanted or possible)[0]])
    assert not any(queue for rank in ranks for queue in rank.pending.values()), "an exchange without a partner"
    return [rank.machine for rank in ranks]


def perform(members: list[tuple[Rank, Instruction]]) -> None:
    machines = [(rank.machine, instruction) for rank, instruction in members]
    if machines[0][1].lane == "transfer":
        return exchange(machines)
    (sender, send), (receiver, receive) = machines
    value = sender.argument(send.arguments[0])
    shape = receiver.device.buffers[receive.outputs[0]].shape
    receiver.store(receive.outputs[0], value.reshape(shape).clone(), "motley::receive")
    for machine, instruction in machines:
        for id in instruction.frees:
            machine.values.pop(id, None)


def exchange(members: list[tuple[Machine, Instruction]]) -> None:
    """One transfer of a group."""
    operator = members[0][1].op
    assert all(instruction.op == operator for _, instruction in members)
    lists = [
        [machine.argument(item) for item in instruction.arguments]
        for machine, instruction in members
    ]
    values = [arguments[0] for arguments in lists]
    assert all(value.is_contiguous() for value in values)
    if operator == "motley::all_reduce":
        total = torch.stack(values).sum(0)
        for value in values:
            value.copy_(total)
        results = None
    elif operator == "motley::all_gather":
        counts = agreed([arguments[1] for arguments in lists])
        assert [value.numel() for value in values] == counts
        results = [torch.cat(values) for _ in members]
    elif operator == "motley::reduce_scatter":
        counts = agreed([arguments[1] for arguments in lists])
        results = [part.clone() for part in torch.stack(values).sum(0).split(counts)]
    else:
        assert operator == "motley::all_to_all", operator
        sent = [value.split(sends) for value, (_, sends, _) in zip(values, lists, strict=True)]
        for i, (_, _, receives) in enumerate(lists):
            assert receives == [parts[i].numel() for parts in sent]
        results = [torch.cat([parts[i] for parts in sent]) for i in range(len(members))]
    for i, (machine, instruction) in enumerate(members):
        if results:
            machine.store(instruction.outputs[0], results[i], operator)
        for id in instruction.frees:
            machine.values.pop(id, None)


def agreed(lists: list[list[int]]) -> list[int]:
    """What all members say."""
    assert all(counts == lists[0] for counts in lists)
    return lists[0]
