"""What is drawn, by its definition (docs/formats/program.md, motley/run/torch/operators): Philox
words by seed, step, draw and global element, and the numbers made of them. In double precision and
by the functions of numpy, so that numbers may differ from a device's in their last bit."""

import numpy as np
import torch

BITS = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24, torch.float64: 53}
LOW = np.uint64(0xFFFFFFFF)


def words(seed, step, draw, word, index):
    """Of elements `index` of the whole batch."""
    index = index.astype(np.uint64)
    block = index // np.uint64(64) * np.uint64(16) + index % np.uint64(16)
    counter = [block & LOW, block >> np.uint64(32), np.full_like(block, draw + (word << 30)), np.full_like(block, step)]
    counter = philox4x32(counter, seed)
    return np.choose((index % np.uint64(64) // np.uint64(16)).astype(int), counter)


def philox4x32(counter, seed):
    """Four arrays of words from four; Salmon et al., SC 2011, ten rounds."""
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        products = [counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)]
        high, low = ([each >> np.uint64(32) for each in products], [each & LOW for each in products])
        counter = [high[1] ^ counter[1] ^ np.uint64(key[0]), low[1], high[0] ^ counter[3] ^ np.uint64(key[1]), low[0]]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


class Stream:
    """The numbers of one draw at elements `index`."""

    def __init__(self, seed, step, draw, index):
        self.draw = lambda word: words(seed, step, draw, word, index)

    def joined(self, word, bits):
        both = (self.draw(word) << np.uint64(32)) | self.draw(word + 1)
        return both >> np.uint64(64 - bits)

    def inner(self, word, is_wide):
        if is_wide:
            return (self.joined(word, 52) + 0.5) * 2.0**-52
        return (self.draw(word) + 0.5) * 2.0**-32

    def numbers(self, distribution, dtype):
        is_wide = dtype == torch.float64
        if distribution == "bits":
            return torch.from_numpy(self.joined(0, 63).astype(np.int64))
        if distribution == "permutation":
            return torch.from_numpy(np.argsort(self.joined(0, 53), kind="stable"))
        if distribution == "uniform":
            bits = BITS[dtype]
            whole = self.joined(0, bits) if is_wide else self.draw(0) >> np.uint64(32 - bits)
            found = whole * 2.0**-bits
        elif distribution == "exponential":
            found = -np.log(self.inner(0, is_wide))
        else:
            turn = self.inner(2 if is_wide else 1, is_wide)
            found = np.sqrt(-2 * np.log(self.inner(0, is_wide))) * np.cos(2 * np.pi * turn)
        return torch.from_numpy(np.asarray(found)).to(dtype)


def place_index(elements, outer, inner, first, total, run, skip, stride):
    """Global elements of a local tensor."""
    local = np.arange(elements, dtype=np.int64)
    row = max(elements // outer, 1)
    here = (local // row * total + first) * inner + local % row
    return here // run * stride + skip + here % run


class PhiloxDraws:
    """Draws of a whole step, for motley.draws.DrawnEagerly: eager PyTorch with a run's numbers."""

    def __init__(self, seed, step):
        self.seed, self.step, self.next = seed, step, 0

    def places(self, shape):
        return np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)

    def random(self, distribution, shape, dtype):
        index = self.places(shape)
        self.next += 1
        stream = Stream(self.seed, self.step, self.next - 1, index)
        return stream.numbers(distribution, dtype).reshape(list(shape))

    def dropout(self, x, p):
        mask = self.random("uniform", x.shape, torch.float32) >= p
        return x * mask * (0.0 if p == 1 else 1 / (1 - p)), mask
