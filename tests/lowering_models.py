"""Small models that lead each family of sharding rules into its corners."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 6


class Net(nn.Module):
    """A module from a constructor of parts and a forward function."""

    def __init__(self, forward, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)
        self._forward = forward

    def forward(self, x, y):
        return self._forward(self, x, y)


def vectors(features=8):
    return torch.randn(BATCH, features)


def labels(classes=5, shape=(BATCH,)):
    return torch.randint(0, classes, shape)


def weighted_labels():
    def forward(self, x, y):
        return F.cross_entropy(self.fc(x), y, weight=self.worth, ignore_index=2)

    net = Net(forward, fc=nn.Linear(8, 5))
    net.register_buffer("worth", torch.tensor([0.5, 1.0, 2.0, 3.0, 0.1]))
    return net, (vectors(), torch.tensor([0, 2, 2, 3, 4, 1]))


def all_ignored_on_a_device():
    def forward(self, x, y):
        return F.cross_entropy(self.fc(x), y, ignore_index=-1)

    return Net(forward, fc=nn.Linear(8, 5)), (vectors(), torch.tensor([0, 1, 2, -1, -1, -1]))


def pixel_labels():
    def forward(self, x, y):
        return F.cross_entropy(self.conv(x), y, ignore_index=0)

    return Net(forward, conv=nn.Conv2d(2, 5, 3, padding=1)), (
        torch.randn(BATCH, 2, 4, 4),
        labels(5, (BATCH, 4, 4)),
    )


def pixel_sums():
    def forward(self, x, y):
        return F.cross_entropy(self.conv(x), y, reduction="sum") / 7

    return Net(forward, conv=nn.Conv2d(2, 5, 3, padding=1)), (
        torch.randn(BATCH, 2, 4, 4),
        labels(5, (BATCH, 4, 4)),
    )


def losses():
    def forward(self, x, y):
        z = self.fc(x)
        probability = torch.sigmoid(z)
        return (
            F.mse_loss(z, y)
            + F.smooth_l1_loss(z, y)
            + F.huber_loss(z, y, delta=0.5)
            + F.l1_loss(z, y)
            + F.binary_cross_entropy(probability, torch.sigmoid(y))
            + F.binary_cross_entropy_with_logits(z, torch.sigmoid(y))
            + F.kl_div(F.log_softmax(z, 1), F.softmax(y, 1), reduction="batchmean")
            + F.soft_margin_loss(z, torch.sign(y))
        )

    return Net(forward, fc=nn.Linear(8, 4)), (vectors(), vectors(4))


def sum_losses():
    def forward(self, x, y):
        z = self.fc(x)
        return F.mse_loss(z, y, reduction="sum") + F.smooth_l1_loss(z, y, reduction="none").sum()

    return Net(forward, fc=nn.Linear(8, 4)), (vectors(), vectors(4))


def masked_mean():
    """A denominator that is a sum over the batch, and one over activations."""

    def forward(self, x, y):
        mask = (y > 0).float()
        error = ((self.fc(x) - y) ** 2 * mask).sum() / mask.sum()
        return error + self.fc(x).exp().mean().log()

    return Net(forward, fc=nn.Linear(8, 4)), (vectors(), vectors(4))


def weight_penalty():
    def forward(self, x, y):
        penalty = sum((p**2).sum() for p in self.parameters())
        return F.mse_loss(self.fc(x), y) + 0.01 * penalty + self.fc.weight.norm()

    return Net(forward, fc=nn.Linear(8, 4)), (vectors(), vectors(4))


def weight_norm():
    def forward(self, x, y):
        weight = self.direction / self.direction.norm(dim=1, keepdim=True) * self.scale
        return F.mse_loss(F.linear(x, weight), y)

    net = Net(forward)
    net.direction = nn.Parameter(torch.randn(4, 8))
    net.scale = nn.Parameter(torch.rand(4, 1) + 0.5)
    return net, (vectors(), vectors(4))


def batch_statistics():
    """Normalisation over the batch written by hand, with a moving mean."""

    def forward(self, x, y):
        mean = x.mean(0)
        spread = ((x - mean) ** 2).mean(0)
        self.seen.mul_(0.9).add_(0.1 * mean.detach())
        return F.mse_loss(self.fc((x - mean) / (spread + 1e-5).sqrt()), y)

    net = Net(forward, fc=nn.Linear(8, 4))
    net.register_buffer("seen", torch.zeros(8))
    return net, (vectors(), vectors(4))


def batch_norms():
    """Global statistics of vectors, of sequences, without weights; fixed statistics."""

    def forward(self, x, y):
        h = self.plain(self.wide(x).view(x.size(0), 4, 5))
        h = self.fixed(h).tanh()
        h = self.rows(h.transpose(1, 2).reshape(-1, 4)).view(x.size(0), -1)
        return F.mse_loss(self.fc(h), y)

    net = Net(
        forward,
        wide=nn.Linear(8, 20),
        plain=nn.BatchNorm1d(4, affine=False),
        fixed=nn.BatchNorm1d(4),
        rows=nn.BatchNorm1d(4, track_running_stats=False),
        fc=nn.Linear(20, 4),
    )
    net.fixed.running_mean.uniform_(-1, 1)
    net.fixed.eval()
    return net, (vectors(), vectors(4))


def averaged_norms():
    """Running statistics that are the mean of all batches', of a norm that two layers share; another
    momentum; dropped features; labels that are ignored, unequally many a half of the batch."""

    def forward(self, x, y):
        h = self.shared(self.conv(x)).relu()
        h = self.shared(h + self.inner(h)).relu()
        h = self.last(self.wide(F.dropout(h.mean((2, 3)), 0.3))).tanh()
        return F.cross_entropy(self.fc(h), y, weight=self.worth, ignore_index=2)

    net = Net(
        forward,
        conv=nn.Conv2d(2, 4, 3),
        shared=nn.BatchNorm2d(4, momentum=None),
        inner=nn.Conv2d(4, 4, 3, padding=1),
        wide=nn.Linear(4, 6),
        last=nn.BatchNorm1d(6, momentum=0.3),
        fc=nn.Linear(6, 5),
    )
    net.shared.num_batches_tracked.fill_(3)
    nn.init.uniform_(net.shared.bias, -1, 1)
    net.register_buffer("worth", torch.tensor([0.5, 1.0, 2.0, 3.0, 0.1]))
    return net, (torch.randn(BATCH, 2, 5, 5), torch.tensor([0, 2, 2, 3, 4, 1]))


def normed_sums():
    """Beside batch norm a power iteration, which each forward pass goes on with; pixels in front, so
    that a stretch of samples is none of rows; a sum for a loss."""

    def forward(self, x, y):
        h = self.narrow(x.movedim(2, 0))  # [4, batch, 3] of [batch, 2, 4]
        h = self.norm(h.flatten(0, 1)).unflatten(0, (4, -1)).tanh()
        return F.mse_loss(self.fc(h.mean(0)), y, reduction="sum")

    narrow = nn.utils.parametrizations.spectral_norm(nn.Linear(2, 3))
    return Net(forward, narrow=narrow, norm=nn.BatchNorm1d(3), fc=nn.Linear(3, 4)), (
        torch.randn(BATCH, 2, 4),
        vectors(4),
    )


def normed_mask():
    """Means over what a mask leaves, whose sum is one of samples, too; smoothed labels."""

    def forward(self, x, y):
        here = (y > 0).float()
        out = self.fc(self.norm(x))
        smooth = F.cross_entropy(out, y.argmax(1), label_smoothing=0.1, ignore_index=1)
        return smooth + (out.square() * here).sum() / here.sum().clamp(min=1)

    return Net(forward, norm=nn.BatchNorm1d(8), fc=nn.Linear(8, 4)), (vectors(), vectors(4))


def normed_pairs():
    """Each sample beside all others."""

    def forward(self, x, y):
        h = self.norm(self.fc(x))
        return F.mse_loss(h @ h.t(), y @ y.t())

    return Net(forward, norm=nn.BatchNorm1d(4), fc=nn.Linear(8, 4)), (vectors(), vectors(4))


def normalized_inputs():
    """Nobody asks for the gradient of what is normalized."""

    def forward(self, x, y):
        return F.mse_loss(self.fc(self.images(x).flatten(1)), y)

    return Net(forward, images=nn.BatchNorm2d(2), fc=nn.Linear(32, 4)), (
        torch.randn(BATCH, 2, 4, 4),
        vectors(4),
    )


def normalized_rows():
    def forward(self, x, y):
        return F.mse_loss(self.fc(self.groups(x).flatten(1) + self.layer(x).flatten(1)), y)

    return Net(forward, groups=nn.GroupNorm(1, 2), layer=nn.LayerNorm(4), fc=nn.Linear(32, 4)), (
        torch.randn(BATCH, 2, 4, 4),
        vectors(4),
    )


def sequence_first():
    """[T, batch, C] throughout, with flattened rows of every sample spread over the tensor."""

    def forward(self, x, y):
        h = self.embed(x).transpose(0, 1).contiguous()
        h = self.fc(h.view(-1, 6)).view(7, -1, 6)
        h = torch.stack([h[0], h[3], h[6]]).sum(0) + h[:, :].mean(0)
        h = torch.cat([h, h.flip(1)], 1).cumsum(1)
        return F.cross_entropy(h[:, :5], y)

    return Net(forward, embed=nn.Embedding(11, 6), fc=nn.Linear(6, 6)), (
        labels(11, (BATCH, 7)),
        labels(),
    )


def empty_cache():
    """Keys and values behind a cache that holds nothing: an old kind of empty tensor, [0] whatever the rank of the others."""

    def forward(self, x, y):
        k, v = (torch.cat([torch.tensor([]), part(x.unflatten(1, (4, 2)))], -2) for part in (self.key, self.value))
        return F.mse_loss(self.fc((x.unflatten(1, (4, 2)) @ k.transpose(1, 2) @ v).flatten(1)), y)

    return Net(forward, key=nn.Linear(2, 2), value=nn.Linear(2, 2), fc=nn.Linear(8, 4)), (vectors(8), vectors(4))


def sequence_first_dropout():
    def forward(self, x, y):
        h = self.embed(x).transpose(0, 1)
        h = F.dropout(self.fc(h.reshape(-1, 6)), 0.5).view(7, -1, 6)
        h = F.dropout(h, 0.25) + F.dropout(self.place, 0.5)[:, None]
        return F.cross_entropy(h.mean(0), y)

    net = Net(forward, embed=nn.Embedding(11, 6), fc=nn.Linear(6, 6))
    net.place = nn.Parameter(torch.randn(7, 6))
    return net, (labels(11, (BATCH, 7)), labels())


class DropPath(nn.Module):
    """One draw a sample, as torchvision's and timm's."""

    def forward(self, x):
        kept = x.new_empty((x.shape[0],) + (1,) * (x.dim() - 1)).bernoulli_(0.7)
        return x * kept.div_(0.7)


def dropouts():
    """Of every form, in place, of channels, that keep mean and variance, of samples."""

    def forward(self, x, y):
        h = F.dropout(self.wide(x), 0.3, inplace=True).view(x.size(0), 4, 6)
        h = h + F.alpha_dropout(h, 0.2, True) + F.feature_alpha_dropout(h, 0.2, True)
        h = h + F.dropout1d(h, 0.4, True) + self.path(h.tanh())
        return F.mse_loss(h.mean(1), y)

    return Net(forward, wide=nn.Linear(8, 24), path=DropPath()), (vectors(), vectors(6))


def recurrent_dropout():
    def forward(self, x, y):
        h, _ = self.lstm(x)
        h, _ = self.gru(h.transpose(0, 1))
        h, _ = self.rnn(h.transpose(0, 1))
        return F.mse_loss(h[:, -1], y)

    return Net(
        forward,
        lstm=nn.LSTM(4, 5, 3, batch_first=True, dropout=0.4, bidirectional=True, proj_size=3),
        gru=nn.GRU(6, 5, 2, dropout=0.3),
        rnn=nn.RNN(5, 4, 2, dropout=0.5, batch_first=True),
    ), (torch.randn(BATCH, 3, 4), vectors(4))


def transcripts():
    """CTC over padded labels, and over so few times that some cannot be aligned."""

    def forward(self, x, y):
        scores = self.fc(x).log_softmax(-1).transpose(0, 1)
        times, counts = torch.full((x.shape[0],), 9), y[:, 0] + 1
        few = F.ctc_loss(scores[:2], y, times - 7, counts, 3, reduction="sum", zero_infinity=True)
        return few + F.ctc_loss(scores, y, times, counts, blank=3)

    return Net(forward, fc=nn.Linear(5, 4)), (torch.randn(BATCH, 9, 5), labels(3, (BATCH, 3)))


def attention_dropout():
    def forward(self, x, y):
        h = self.fc(x)
        h = h + self.heads(h, h, h, need_weights=False)[0] + self.heads(h, h, h)[0]
        q = h.view(x.size(0), 5, 2, 4).transpose(1, 2)
        h = F.scaled_dot_product_attention(q, q, q, dropout_p=0.3, is_causal=True)
        return F.mse_loss(h.mean(2).flatten(1), y)

    return Net(
        forward, fc=nn.Linear(4, 8), heads=nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True)
    ), (torch.randn(BATCH, 5, 4), vectors(8))


def noises():
    """Every distribution, by each of the ways to ask for it."""

    def forward(self, x, y):
        z = self.fc(x)
        shape, like = z.shape, torch.zeros_like(z)
        drawn = [
            torch.rand(shape), torch.rand_like(z), like.clone().uniform_(-1, 2),
            torch.randn(shape), torch.randn_like(z), like.clone().normal_(1, 0.5), torch.normal(z, 0.5),
            torch.normal(0.5, z.abs()), torch.normal(z, z.abs()), torch.normal(0.0, 0.3, shape),
            torch.randint(5, shape), torch.randint_like(like, -2, 3), like.clone().random_(4),
            torch.bernoulli(z.sigmoid()), like.clone().bernoulli_(0.3), like.clone().bernoulli_(z.sigmoid()),
            like.clone().exponential_(2.0), like.clone().geometric_(0.4), like.clone().log_normal_(0.1, 0.2),
            like.clone().cauchy_().clamp(-3, 3), torch.rand(4) + torch.rand(()), torch.randperm(4),
            F.rrelu(z, training=True), F.gumbel_softmax(z), F.gumbel_softmax(z, hard=True),
        ]  # fmt: skip
        halves = torch.rand(shape, dtype=torch.bfloat16).float() + torch.randn(shape, dtype=torch.float64).float()
        return F.mse_loss(z * sum(drawn) / len(drawn) + halves, y)

    return Net(forward, fc=nn.Linear(8, 4)), (vectors(), vectors(4))


def drawn_masks():
    """Patches left out as in masked autoencoders, choices by weight, noise along other dimensions."""

    def forward(self, x, y):
        h = self.fc(x)
        kept = torch.rand(x.size(0), 7).argsort(1)[:, :4]
        h = h.gather(1, kept[:, :, None].expand(-1, -1, 6))
        weights = h.detach().abs().mean(1)
        one, some = torch.multinomial(weights, 1), torch.multinomial(weights, 3)
        often = torch.multinomial(weights, 4, replacement=True)
        chosen = [h.gather(2, each[:, None].expand(-1, 4, -1)).mean(2) for each in (one, some, often)]
        rows = torch.rand(4, x.size(0)).t() * torch.rand(7, x.size(0)).t()[:, :4]
        return F.mse_loss(sum(chosen) + rows, y)

    return Net(forward, fc=nn.Linear(5, 6)), (torch.randn(BATCH, 7, 5), vectors(4))


def all_draws():
    """Every kind of draw in one step."""

    def forward(self, x, y):
        x = x[torch.randperm(x.size(0))] * 0.1 + x
        h = self.rnn(x)[0] + torch.randn_like(x) * 0.1
        h = h + self.path(self.heads(h, h, h, need_weights=False)[0])
        h = F.dropout(h, 0.2, inplace=True) + F.alpha_dropout(h, 0.1, True) + F.dropout1d(h, 0.3, True)
        kept = torch.rand(x.size(0), 5).argsort(1)[:, :3]
        h = h.gather(1, kept[:, :, None].expand(-1, -1, 6))
        h = h * F.gumbel_softmax(h) + F.rrelu(h, training=True) + torch.bernoulli(h.sigmoid())
        chosen = torch.multinomial(h.detach().abs().mean(1), 2)
        often = torch.multinomial(h.detach().abs().mean(1), 3, replacement=True)
        picked = [h.gather(2, each[:, None].expand(-1, 3, -1)).mean((1, 2)) for each in (chosen, often)]
        noise = torch.randint(3, y.shape) + torch.rand(6) + torch.normal(0.0, 0.1, y.shape)
        return F.mse_loss(self.fc(h.mean(1) + sum(picked)[:, None]), y + noise)

    return Net(
        forward,
        rnn=nn.GRU(6, 6, 2, dropout=0.4, batch_first=True),
        heads=nn.MultiheadAttention(6, 2, dropout=0.3, batch_first=True),
        path=DropPath(),
        fc=nn.Linear(6, 6),
    ), (torch.randn(BATCH, 5, 6), vectors(6))


def mixup():
    def forward(self, x, y):
        order, share = torch.randperm(x.size(0)), torch.rand(())
        mixed = share * x + (1 - share) * x[order]
        return F.mse_loss(self.fc(mixed), share * y + (1 - share) * y[order])

    return Net(forward, fc=nn.Linear(8, 4)), (vectors(), vectors(4))


def two_views():
    """Two views of each sample joined along the batch, and taken apart again."""

    def forward(self, x, y):
        both = self.fc(torch.cat([x, -x], 0)).tanh()
        first, second = both[: x.size(0)], both[x.size(0) :]
        third, targets = torch.chunk(torch.cat([both.chunk(2)[1], y]), 2)
        return F.mse_loss(first, y) + F.mse_loss(second, -targets) + both.repeat(2, 1).mean() + third.square().mean()

    return Net(forward, fc=nn.Linear(8, 4)), (vectors(), vectors(4))


def indexing():
    def forward(self, x, y):
        z = self.fc(x)
        rows = torch.arange(z.size(0), device=z.device)
        chosen = z[rows, y] + z.gather(1, y[:, None]).squeeze(1)
        columns = z[:, self.columns].sum(1) + z.index_select(1, self.columns).sum(1)
        table = self.table[y].sum(1) + self.table.index_select(0, y).mean(1)
        return ((chosen + columns + table) ** 2).mean()

    net = Net(forward, fc=nn.Linear(8, 5))
    net.table = nn.Parameter(torch.randn(5, 3))
    net.register_buffer("columns", torch.tensor([0, 2, 2]))
    return net, (vectors(), labels())


def reductions():
    def forward(self, x, y):
        z = self.fc(x).view(x.size(0), 4, 5)
        parts = [
            z.amax(2),
            z.max(2).values,
            z.logsumexp(2),
            z.var(2),
            z.std(2),
            z.norm(dim=2),
            z.sort(2).values[..., 0],
            z.topk(2, 2).values[..., 1],
            z.softmax(2).prod(2),
            z.tril().sum(2),
            F.pad(z, (1, 2)).mean(2),
            z.cumprod(2)[..., -1],
        ]
        return F.mse_loss(sum(parts), y)

    return Net(forward, fc=nn.Linear(8, 20)), (vectors(), vectors(4))


def images():
    def forward(self, x, y):
        h = self.norm(self.down(x)).relu()
        h = F.interpolate(F.avg_pool2d(h, 2), scale_factor=2, mode="bilinear")
        h = self.up(h) + F.adaptive_avg_pool2d(h, 8)[:, :2]
        h = F.interpolate(h, scale_factor=0.5) * torch.sigmoid(h[:, :, ::2, ::2])
        return F.mse_loss(h.flatten(1)[:, :4], y)

    return Net(
        forward,
        down=nn.Conv2d(2, 4, 3, padding=1, groups=2),
        norm=nn.GroupNorm(2, 4),
        up=nn.ConvTranspose2d(4, 2, 3, padding=1),
    ), (torch.randn(BATCH, 2, 8, 8), vectors(4))


def products():
    """Batched products with weights on either side, and a square of features."""

    def forward(self, x, y):
        z = self.fc(x).view(x.size(0), 4, 5)
        mixed = torch.einsum("bij,jk->bik", z, self.right) @ z.transpose(1, 2)
        left = torch.einsum("ki,bij->bkj", self.left, mixed)
        gram = x.t() @ x / x.size(0)
        return F.mse_loss(torch.baddbmm(mixed, left, mixed).sum(2), y) + (gram**2).mean() * (
            self.right.sum()
        )

    net = Net(forward, fc=nn.Linear(8, 20))
    net.right = nn.Parameter(torch.randn(5, 5))
    net.left = nn.Parameter(torch.randn(4, 4))
    return net, (vectors(), vectors(4))


def attention_by_hand():
    """Grouped heads, a learned query, rotary-like halves, RMS norm, a padding mask."""

    def forward(self, x, y):
        h = self.norm(self.embed(x))
        q, k, v = self.qkv(h).view(x.size(0), 7, 3, 2, 4).permute(2, 0, 3, 1, 4)
        q = torch.cat([-q[..., 2:], q[..., :2]], -1)
        mask = (x == 0)[:, None, None, :]
        weights = (q @ k.transpose(-1, -2) / 2).masked_fill(mask, -1e9).softmax(-1)
        h = (weights @ v).transpose(1, 2).reshape(x.size(0), 7, 8)
        query = self.query.expand(x.size(0), 2, 1, 4)
        pooled = F.scaled_dot_product_attention(query, k, v, attn_mask=~mask).flatten(1)
        return F.cross_entropy(self.head(h).transpose(1, 2), y) + pooled.square().mean()

    net = Net(
        forward,
        embed=nn.Embedding(11, 8),
        norm=nn.RMSNorm(8),
        qkv=nn.Linear(8, 24),
        head=nn.Linear(8, 5),
    )
    net.query = nn.Parameter(torch.randn(1, 2, 1, 4))
    return net, (torch.randint(1, 11, (BATCH, 7)), labels(5, (BATCH, 7)))


def norms():
    """Norms over several dimensions, without weights, in groups; variances over all kinds of them."""

    def forward(self, x, y):
        z = self.wide(self.rms(self.fc(x)) + 3).view(x.size(0), 6, 8)
        h = self.both(z) + F.layer_norm(z, (8,)) + F.rms_norm(z, (6, 8), eps=1e-3)
        h = self.groups(h) * F.group_norm(z, 2) + self.scale(h.transpose(1, 2)).transpose(1, 2)
        spread = z.var(1, correction=0) + z.std(1) + torch.var_mean(h, 1)[0]
        return F.mse_loss(spread + h.mean(1), y) + z.flatten(1).var(1, correction=2).mean()

    return Net(
        forward,
        fc=nn.Linear(8, 12),
        rms=nn.RMSNorm(12, eps=1e-4),
        wide=nn.Linear(12, 48),
        both=nn.LayerNorm((6, 8)),
        groups=nn.GroupNorm(3, 6),
        scale=nn.LayerNorm(6, bias=False),
    ), (vectors(), vectors(8))


def weighted_pixels():
    """Class weights with a label for each place, as a mean and as a sum."""

    def forward(self, x, y):
        z = self.conv(x)
        mean = F.cross_entropy(z, y, weight=self.worth, ignore_index=3)
        each = F.cross_entropy(z, y, weight=self.worth, reduction="none")
        return mean + F.nll_loss(z, y, weight=self.worth, reduction="sum") / 50 + each.mean()

    net = Net(forward, conv=nn.Conv2d(2, 7, 3, padding=1))
    net.register_buffer("worth", torch.rand(7) + 0.2)
    return net, (torch.randn(BATCH, 2, 4, 4), labels(7, (BATCH, 4, 4)))


def mixed_samples():
    """Operators along the samples, and one that nothing is known of: they run whole."""

    def forward(self, x, y):
        z = self.fc(x)
        ranked = z.sort(0).values.tanh() + z.cumsum(0).sin() + z.flip(0)
        inverse = torch.linalg.inv_ex(z.view(-1, 2, 2) * 0.1 + self.one).inverse
        return F.mse_loss(ranked, y) + (inverse**2).mean() + z.amax(0).sum()

    net = Net(forward, fc=nn.Linear(8, 4))
    net.register_buffer("one", torch.eye(2))
    return net, (vectors(), vectors(4))


def without_rules():
    """Nothing can be split: all that makes the loss has no rule, or mixes the samples."""

    def forward(self, x, y):
        return torch.cdist(x, self.places, compute_mode="donot_use_mm_for_euclid_dist").median()

    net = Net(forward)
    net.register_parameter("places", nn.Parameter(torch.randn(5, 8)))
    return net, (vectors(), vectors(4))


def resampling():
    def forward(self, x, y):
        z = self.conv(x)
        big = F.interpolate(z, scale_factor=2, mode="bilinear") + F.interpolate(z, scale_factor=2)
        big = F.pad(big, (1, 1, 1, 1), mode="reflect") + F.pad(big, (1, 1, 1, 1), mode="replicate")
        shuffled = F.pixel_shuffle(big, 2)
        line = F.interpolate(z.flatten(2), scale_factor=2.0) + F.avg_pool1d(z.flatten(2), 1).repeat(1, 1, 2)
        pooled = F.adaptive_max_pool2d(shuffled, 3).flatten(1).sum(1)
        places = x.movedim(1, 3)  # takes no gradient
        line = line.mean((1, 2)) + F.grid_sample(z, places, align_corners=True).mean((1, 2, 3))
        return F.mse_loss(pooled + line, y) + F.pixel_unshuffle(z, 2).sin().mean()

    return Net(forward, conv=nn.Conv2d(2, 4, 3, padding=1)), (
        torch.randn(BATCH, 2, 4, 4),
        vectors(1).flatten(),
    )


def selections():
    def forward(self, x, y):
        z = self.fc(x).view(x.size(0), 4, 6)
        parts = [
            z.roll(2, 2),
            z.cummax(2).values,
            z.logcumsumexp(2),
            F.glu(z.repeat(1, 1, 2), 2),
            z.select_scatter(z[..., 0] * 2, 2, 3),
            z.slice_scatter(z[..., :2].exp(), 2, 1, 3),
            z.scatter_reduce(2, self.places.expand(x.size(0), 4, 6), z * 2, "sum"),
        ]
        whole = torch.stack(parts).sum(0)
        ends = whole.kthvalue(2, 2).values + z.median(2).values + z.nansum(2) + z.norm(3.0, 2)
        ends = ends.unsqueeze(1).squeeze().squeeze(0)  # of one sample as of several
        return F.mse_loss(whole.mean(2) + ends + torch.std_mean(z, 2)[0], y)

    net = Net(forward, fc=nn.Linear(8, 24))
    net.register_buffer("places", torch.tensor([0, 2, 2, 5, 1, 0]))
    return net, (vectors(), vectors(4))


def row_numbers():
    """Numbers of rows in the arithmetic, of several rows a sample, from another number on, and a write by them."""

    def forward(self, x, y):
        z = self.fc(x)
        rows = torch.arange(z.size(0))
        weights = 1 / (1 + rows) + torch.arange(2, z.size(0) + 2).sqrt() + self.places(rows % 3).sum(1)
        tokens = torch.arange(z.size(0) * 2).view(-1, 2).float().cos().sum(1)
        kept = z.index_put((rows, y), tokens).sin() + z.index_put((rows[:, None], self.columns), z[:, :2], True)
        return (kept.sum(1) * weights).mean() + z[rows[:, None], self.columns].square().mean()

    net = Net(forward, fc=nn.Linear(8, 5), places=nn.Embedding(3, 2))
    net.register_buffer("columns", torch.tensor([[0, 3]]))
    return net, (vectors(), labels())


def windows():
    """Pools, paddings and samples of one, two and three dimensions; patches taken out and put back."""

    def forward(self, x, y):
        z = self.conv(x)
        line, cube = z.flatten(2), z[:, :, None].expand(-1, -1, 4, -1, -1).contiguous()
        patches = F.unfold(z, 3, padding=1)
        back = F.fold(patches.tanh(), (8, 8), 3, padding=1)
        grid = self.turn(z.mean((2, 3))).view(-1, 1, 3, 2).tanh()
        parts = [
            F.max_pool1d(line, 2),
            F.avg_pool1d(F.pad(line, (1, 1), mode="replicate"), 3),
            F.adaptive_avg_pool1d(line, 5),
            F.adaptive_max_pool1d(line, 5),
            F.max_pool3d(cube, 2),
            F.avg_pool3d(F.pad(cube, (1, 1, 1, 1, 1, 1), mode="replicate"), 2),
            F.adaptive_avg_pool3d(cube, (1, 2, 3)),
            F.adaptive_max_pool3d(cube, 2),
            F.adaptive_avg_pool2d(z, 1),
            F.pad(cube, (1, 1, 1, 1, 1, 1), mode="reflect"),
            F.grid_sample(z, grid, align_corners=False),
            z.repeat_interleave(2, 1).unfold(2, 3, 2),
            z.diff(dim=2),
            back,
        ]
        return sum(part.flatten(1).sin().mean(1).sub(y).square().mean() for part in parts)

    return Net(forward, conv=nn.Conv2d(2, 4, 3, padding=1), turn=nn.Linear(4, 6)), (
        torch.randn(BATCH, 2, 8, 8),
        vectors(1).flatten(),
    )


def volumes():
    """Convolutions of one and three dimensions, depthwise, transposed, dilated; normalised volumes."""

    def forward(self, x, y):
        line = self.line(x)
        cube = self.cube(line.view(x.size(0), 4, 2, 4, 4))
        up = self.up(self.norm(cube))
        wide = self.wide(line).relu()
        return F.mse_loss(up.flatten(1).mean(1) + wide.flatten(1).mean(1), y)

    return Net(
        forward,
        line=nn.Conv1d(2, 4, 3, padding=2, dilation=2, groups=2),
        cube=nn.Conv3d(4, 4, 3, padding=1, groups=4),
        norm=nn.InstanceNorm3d(4, affine=True),
        up=nn.ConvTranspose3d(4, 2, 3, stride=2, padding=1, output_padding=1),
        wide=nn.ConvTranspose1d(4, 6, 4, stride=2, groups=2),
    ), (torch.randn(BATCH, 2, 32), vectors(1).flatten())


def more_losses():
    """The losses of torch.nn that `losses` does not have, each with its mean over the batch."""

    def forward(self, x, y):
        z = self.fc(x)
        other, sign = self.other(x), torch.where(y > 2, 1, -1)
        return (
            F.poisson_nll_loss(z, other.exp())
            + F.cosine_embedding_loss(z, other, sign, margin=0.1)
            + F.triplet_margin_loss(z, other, z.flip(1))
            + F.triplet_margin_with_distance_loss(z, other, z.roll(1, 1))
            + F.margin_ranking_loss(z[:, 0], z[:, 1], sign, margin=0.2)
            + F.hinge_embedding_loss(z[:, 2], sign)
            + F.multi_margin_loss(z, y)
            + F.multilabel_soft_margin_loss(z, F.one_hot(y, 5).float())
            + F.multilabel_margin_loss(z, self.places[y])
            + F.cross_entropy(z, y, label_smoothing=0.2)
            + F.cross_entropy(z, other.softmax(1))
            + F.kl_div(z.log_softmax(1), other.log_softmax(1), reduction="mean", log_target=True)
            + F.binary_cross_entropy_with_logits(z, other.sigmoid(), pos_weight=self.worth)
        )

    net = Net(forward, fc=nn.Linear(8, 5), other=nn.Linear(8, 5))
    net.register_buffer("places", torch.tensor([[0, 1, -1, 0, 0], [2, -1, 0, 0, 0], [3, 4, -1, 0, 0]] * 2)[:5])
    net.register_buffer("worth", torch.rand(5) + 0.5)
    return net, (vectors(), labels())


def spectra():
    """Short-time spectra, a spectral convolution, conjugates, numbers that are complex themselves."""

    def forward(self, x, y):
        seen = torch.stft(x, 16, 4, window=self.window, return_complex=True)
        waves = torch.fft.rfft(x + self.bias)[:, :6]
        mixed = torch.einsum("bi,io->bo", waves, torch.view_as_complex(self.weight))
        back = torch.fft.irfft(mixed * (0.5 + 2j), n=10)
        turned = torch.fft.ifft(torch.complex(x, self.bias.expand_as(x)), norm="forward")
        facing = torch.polar(turned.detach().abs(), turned.detach().angle()).conj() + 1j
        power = (turned * facing).imag.square().mean() + turned.abs().mean() + turned.std(1).mean()
        return F.cross_entropy(self.fc(seen.abs().mean(2)), y) + back.square().mean() + power

    net = Net(forward, fc=nn.Linear(9, 5))
    net.bias = nn.Parameter(torch.randn(32))
    net.weight = nn.Parameter(torch.randn(6, 4, 2) / 4)
    net.register_buffer("window", torch.hann_window(16))
    return net, (torch.randn(BATCH, 32), labels())


def bags():
    """Bags of words, an LSTM cell, a bilinear layer."""

    def forward(self, x, y):
        words = self.bag(y).square().mean() + self.mean(y).square().mean()
        words = words + self.weighed(y, per_sample_weights=x[:, :2]).square().mean()
        h, c = self.cell(x, (self.start(x), x))
        return words + self.pair(h, c).square().mean() + F.cosine_similarity(h, c).mean()

    return Net(
        forward,
        bag=nn.EmbeddingBag(5, 3, mode="sum"),
        mean=nn.EmbeddingBag(5, 3, mode="mean", padding_idx=2),
        weighed=nn.EmbeddingBag(5, 3, mode="sum", padding_idx=-1),
        cell=nn.LSTMCell(8, 8),
        start=nn.Linear(8, 8),
        pair=nn.Bilinear(8, 8, 2),
    ), (vectors(), torch.randint(1, 5, (BATCH, 2)))


MODELS = [
    windows,
    volumes,
    more_losses,
    spectra,
    bags,
    row_numbers,
    mixed_samples,
    without_rules,
    resampling,
    selections,
    norms,
    weighted_pixels,
    weighted_labels,
    all_ignored_on_a_device,
    pixel_labels,
    pixel_sums,
    losses,
    sum_losses,
    masked_mean,
    weight_penalty,
    weight_norm,
    batch_statistics,
    batch_norms,
    averaged_norms,
    normed_sums,
    normed_mask,
    normed_pairs,
    normalized_inputs,
    normalized_rows,
    sequence_first,
    empty_cache,
    sequence_first_dropout,
    dropouts,
    recurrent_dropout,
    attention_dropout,
    transcripts,
    noises,
    drawn_masks,
    mixup,
    two_views,
    indexing,
    reductions,
    images,
    products,
    attention_by_hand,
]
