"""Models of transformers with few layers, by their configurations: FILE.py:FUNCTION as a user writes it."""

import torch
import torch.nn.functional as F
import transformers as hf
from small import BATCH, Loss, texts
from torch import nn

SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
PADDING = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def config(kind, **options):
    """No layer is left out at random: that would be a branch."""
    made = kind(**PADDING, **options)
    for part in [made, *(value for value in vars(made).values() if isinstance(value, hf.PreTrainedConfig))]:
        for name in vars(part):
            if "layerdrop" in name:
                setattr(part, name, 0.0)
    return made


def language(name, **options):
    """A decoder that predicts the next token."""
    settings = {**SMALL, "max_position_embeddings": 32, "use_cache": False, **options}
    made = config(getattr(hf, name + "Config"), **{key: value for key, value in settings.items() if value is not None})
    net = getattr(hf, name + "ForCausalLM")(made)
    if "num_local_experts" in options or "num_experts" in options:
        net.set_experts_implementation("batched_mm")  # the others are operators of transformers, or sort all tokens
    return texts(net)


def encoder(name, task="MaskedLM", **options):
    made = config(getattr(hf, name + "Config"), **{**SMALL, "max_position_embeddings": 40, "num_labels": 3, **options})
    return texts(getattr(hf, f"{name}For{task}")(made), labels=3 if task == "SequenceClassification" else None)


def gpt2():
    made = config(hf.GPT2Config, vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4, use_cache=False)
    return texts(hf.GPT2LMHeadModel(made))


def gpt_neo():
    made = config(hf.GPTNeoConfig, vocab_size=64, max_position_embeddings=32, hidden_size=32, num_layers=2, num_heads=4,
                  attention_types=[[["global", "local"], 1]], window_size=8, use_cache=False)
    return texts(hf.GPTNeoForCausalLM(made))


def gpt_neox():
    return language("GPTNeoX")


def gptj():
    made = config(hf.GPTJConfig, vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=4, rotary_dim=4,
                  use_cache=False)
    return texts(hf.GPTJForCausalLM(made))


def opt():
    return language("OPT", intermediate_size=None, ffn_dim=64, word_embed_proj_dim=32)


def bloom():
    made = config(hf.BloomConfig, vocab_size=64, hidden_size=32, n_layer=2, n_head=4, use_cache=False)
    return texts(hf.BloomForCausalLM(made))


def llama():
    return language("Llama", num_key_value_heads=2)


def mistral():
    return language("Mistral", num_key_value_heads=2, sliding_window=8, head_dim=8)


def mixtral():
    return language("Mixtral", num_key_value_heads=2, num_local_experts=4, head_dim=8)


def qwen2():
    return language("Qwen2", num_key_value_heads=2)


def qwen3():
    return language("Qwen3", num_key_value_heads=2, head_dim=8)


def qwen3_moe():
    return language("Qwen3Moe", num_key_value_heads=2, head_dim=8, num_experts=4, num_experts_per_tok=2,
                    moe_intermediate_size=32)


def gemma():
    return language("Gemma", num_key_value_heads=2, head_dim=8)


def gemma2():
    return language("Gemma2", num_key_value_heads=2, head_dim=8, sliding_window=8)


def phi():
    return language("Phi")


def phi3():
    return language("Phi3", num_key_value_heads=2)


def falcon():
    return language("Falcon", intermediate_size=None, ffn_hidden_size=64)


def stablelm():
    return language("StableLm", num_key_value_heads=2)


def olmo2():
    return language("Olmo2")


def granite():
    return language("Granite", num_key_value_heads=2)


def cohere():
    return language("Cohere", num_key_value_heads=2)


def starcoder2():
    return language("Starcoder2", num_key_value_heads=2)


def olmo():
    return language("Olmo")


def cohere2():
    return language("Cohere2", num_key_value_heads=2, sliding_window=8)


def glm():
    return language("Glm", num_key_value_heads=2, head_dim=8)


def nemotron():
    return language("Nemotron", num_key_value_heads=2)


def gpt_oss():
    return language("GptOss", num_key_value_heads=2, head_dim=8, num_local_experts=4, sliding_window=8)


def recurrent_gemma():
    return language("RecurrentGemma", num_key_value_heads=1, head_dim=8, lru_width=32, attention_window_size=8)


def mpt():
    made = config(hf.MptConfig, vocab_size=64, d_model=32, n_layers=2, n_heads=4, max_seq_len=32, use_cache=False)
    return texts(hf.MptForCausalLM(made))


def mamba():
    made = config(hf.MambaConfig, vocab_size=64, hidden_size=16, num_hidden_layers=2, state_size=4, use_cache=False)
    return texts(hf.MambaForCausalLM(made), length=8)


def mamba2():
    made = config(hf.Mamba2Config, vocab_size=64, hidden_size=32, num_hidden_layers=2, state_size=8, num_heads=8,
                  head_dim=8, n_groups=2, chunk_size=8, use_cache=False)
    return texts(hf.Mamba2ForCausalLM(made))


def rwkv():
    made = config(hf.RwkvConfig, vocab_size=64, hidden_size=32, attention_hidden_size=32, num_hidden_layers=2,
                  context_length=16, use_cache=False)
    return texts(hf.RwkvForCausalLM(made), length=8)


def bert():
    return encoder("Bert")


def bert_classifier():
    return encoder("Bert", "SequenceClassification")


def roberta():
    return encoder("Roberta")


def electra():
    return encoder("Electra", embedding_size=16)


def albert():
    return encoder("Albert", embedding_size=16)


def deberta_v2():
    return encoder("DebertaV2", relative_attention=True, position_buckets=8, pos_att_type=["p2c", "c2p"],
                   share_att_key=True, norm_rel_ebd="layer_norm")


def modernbert():
    return encoder("ModernBert", cls_token_id=1, sep_token_id=2, global_attn_every_n_layers=2, local_attention=8)


def distilbert():
    made = config(hf.DistilBertConfig, vocab_size=64, dim=32, n_layers=2, n_heads=4, hidden_dim=64,
                  max_position_embeddings=32)
    return texts(hf.DistilBertForMaskedLM(made))


def mpnet():
    return encoder("MPNet")


def xlnet():
    made = config(hf.XLNetConfig, vocab_size=64, d_model=32, n_layer=2, n_head=4, d_inner=64, num_labels=3)
    return texts(hf.XLNetForSequenceClassification(made), labels=3)


def fnet():
    return encoder("FNet")


def t5():
    made = config(hf.T5Config, vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                  decoder_start_token_id=0, use_cache=False)
    return texts(hf.T5ForConditionalGeneration(made))


TWO_STACKS = dict(vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2,
                  encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
                  max_position_embeddings=32, decoder_start_token_id=2, use_cache=False)


def bart():
    return texts(hf.BartForConditionalGeneration(config(hf.BartConfig, **TWO_STACKS)))


def mbart():
    return texts(hf.MBartForConditionalGeneration(config(hf.MBartConfig, **TWO_STACKS)))


def pictures(net, names=("pixel_values", "labels"), classes=10, side=32):
    torch.manual_seed(1)
    return Loss(net, names), (torch.randn(BATCH, 3, side, side), torch.randint(0, classes, (BATCH,)))


VISION = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
          "image_size": 32, "patch_size": 8}


def vit():
    return pictures(hf.ViTForImageClassification(config(hf.ViTConfig, **VISION, num_labels=10)))


def dinov2():
    return pictures(hf.Dinov2ForImageClassification(config(hf.Dinov2Config, **VISION, num_labels=10)))


def segformer():
    made = config(hf.SegformerConfig, depths=[1, 1], num_encoder_blocks=2, hidden_sizes=[16, 32],
                  num_attention_heads=[1, 2], sr_ratios=[4, 2], patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2],
                  decoder_hidden_size=32, num_labels=10)
    return pictures(hf.SegformerForImageClassification(made))


def clip():
    made = hf.CLIPConfig(
        text_config=config(hf.CLIPTextConfig, **SMALL, max_position_embeddings=16, projection_dim=16).to_dict(),
        vision_config=config(hf.CLIPVisionConfig, **VISION, projection_dim=16).to_dict(),
        projection_dim=16,
    )
    torch.manual_seed(1)

    class Pairs(Loss):
        def forward(self, pixel_values, input_ids):
            return self.net(input_ids=input_ids, pixel_values=pixel_values, return_loss=True).loss

    return Pairs(hf.CLIPModel(made), ()), (
        torch.randn(BATCH, 3, 32, 32),
        torch.randint(3, 64, (BATCH, 16)),
    )


def speech(net):
    made = config(hf.Wav2Vec2Config, **SMALL, conv_dim=(16, 16, 16), conv_stride=(5, 4, 2), conv_kernel=(10, 8, 4),
                  num_feat_extract_layers=3, num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4,
                  mask_time_prob=0.0, apply_spec_augment=False, num_labels=3, classifier_proj_size=16)
    return net(made)


def wav2vec2():
    net = speech(hf.Wav2Vec2ForSequenceClassification)
    torch.manual_seed(1)
    return Loss(net, ("input_values", "labels")), (torch.randn(BATCH, 1600), torch.randint(0, 3, (BATCH,)))


class Transcripts(nn.Module):
    """A model that gives scores of letters by time, with a loss by padded transcripts."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, sound, letters, counts):
        scores = self.net(sound).logits.log_softmax(-1)
        times = torch.full((scores.shape[0],), scores.shape[1])
        return F.ctc_loss(scores.transpose(0, 1), letters, times, counts)


def wav2vec2_ctc():
    net = Transcripts(speech(hf.Wav2Vec2ForCTC))
    torch.manual_seed(1)
    return net, (torch.randn(BATCH, 1600), torch.randint(3, 64, (BATCH, 6)), torch.randint(1, 7, (BATCH,)))


def whisper():
    made = config(hf.WhisperConfig, vocab_size=64, num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=2,
                  encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64,
                  max_source_positions=20, max_target_positions=16, decoder_start_token_id=1, use_cache=False,
                  suppress_tokens=None, begin_suppress_tokens=None)
    torch.manual_seed(1)
    return Loss(hf.WhisperForConditionalGeneration(made), ("input_features", "labels")), (
        torch.randn(BATCH, 16, 40),
        torch.randint(3, 64, (BATCH, 12)),
    )
