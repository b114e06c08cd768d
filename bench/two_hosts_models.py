"""Ten full-size models of torchvision and transformers, for planning: parameters on `meta`, products in float16, as
V100 and T4 have no bfloat16."""

import torch
import torchvision.models as tv
import transformers as hf
from torch import nn

CLASSES, SEQUENCE = 1000, 1024


class Loss(nn.Module):
    """Cross entropy of what `net` makes of the inputs before the last, which is the target."""

    def __init__(self, net, is_shifted=False):
        super().__init__()
        self.net, self.is_shifted = net, is_shifted

    def forward(self, *inputs):
        *given, target = inputs
        with torch.autocast("cpu", torch.float16):
            scores = self.net(*given)
        scores = getattr(scores, "logits", scores).float()
        if self.is_shifted:
            scores, target = scores[:, :-1], target[:, 1:]
        return nn.functional.cross_entropy(scores.flatten(0, -2), target.flatten())


class Next(nn.Module):
    """A language model whose tokens are its target, too."""

    def __init__(self, net):
        super().__init__()
        self.loss = Loss(net, is_shifted=True)

    def forward(self, ids):
        return self.loss(ids, ids)


class Pair(nn.Module):
    """An encoder and a decoder, in the order of the forward's arguments."""

    def __init__(self, net, first):
        super().__init__()
        self.net, self.first = net, first

    def forward(self, source, ids):
        return self.net(**{self.first: source}, decoder_input_ids=ids)


def ids(length=SEQUENCE):
    return torch.zeros(2, length, dtype=torch.int64)


def image(make):
    with torch.device("meta"):
        net = Loss(make())
    return net, (torch.zeros(2, 3, 224, 224), torch.zeros(2, dtype=torch.int64))


def language(kind, config):
    with torch.device("meta"):
        net = Next(kind(config))
    return net, (ids(),)


def resnet152():
    return image(tv.resnet152)


def convnext_large():
    return image(tv.convnext_large)


def vit_l_16():
    return image(tv.vit_l_16)


def swin_b():
    return image(tv.swin_b)


def bert_large():
    config = hf.BertConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    with torch.device("meta"):
        net = Loss(hf.BertForMaskedLM(config))
    return net, (ids(512), ids(512))


def gpt2_xl():
    return language(hf.GPT2LMHeadModel, hf.GPT2Config(n_embd=1600, n_layer=48, n_head=25, use_cache=False))


def opt_1_3b():
    config = hf.OPTConfig(hidden_size=2048, ffn_dim=8192, num_hidden_layers=24, num_attention_heads=32,
                          word_embed_proj_dim=2048, layerdrop=0.0, use_cache=False)  # fmt: skip
    return language(hf.OPTForCausalLM, config)


def llama_1_1b():
    config = hf.LlamaConfig(vocab_size=32000, hidden_size=2048, intermediate_size=5632, num_hidden_layers=22,
                            num_attention_heads=32, num_key_value_heads=4, use_cache=False)  # fmt: skip
    return language(hf.LlamaForCausalLM, config)


def t5_large():
    config = hf.T5Config(d_model=1024, d_ff=4096, num_layers=24, num_heads=16, d_kv=64, use_cache=False)
    with torch.device("meta"):
        net = Loss(Pair(hf.T5ForConditionalGeneration(config), "input_ids"))
    return net, (ids(512), ids(512), ids(512))


def whisper_medium():
    config = hf.WhisperConfig(d_model=1024, encoder_layers=24, decoder_layers=24, encoder_attention_heads=16,
                              decoder_attention_heads=16, encoder_ffn_dim=4096, decoder_ffn_dim=4096,
                              encoder_layerdrop=0.0, decoder_layerdrop=0.0, use_cache=False)  # fmt: skip
    with torch.device("meta"):
        net = Loss(Pair(hf.WhisperForConditionalGeneration(config), "input_features"))
    return net, (torch.zeros(2, 80, 3000), ids(256), ids(256))
