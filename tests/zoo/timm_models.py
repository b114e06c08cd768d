"""Models of timm with few blocks and channels: FILE.py:FUNCTION as a user writes it."""

import timm
from small import CLASSES, images
from timm.layers import GatedMlp, GroupNorm1
from timm.models.convmixer import ConvMixer
from timm.models.focalnet import FocalNet
from timm.models.metaformer import MetaFormer
from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock, SpatialGatingBlock
from timm.models.volo import VOLO


def model(name, side=64, **options):
    return images(timm.create_model(name, num_classes=CLASSES, **options), side=side)


def beit():
    return model("beit_base_patch16_224", img_size=64, depth=2, embed_dim=32, num_heads=4)


def eva():
    return model("eva02_tiny_patch14_224", side=56, img_size=56, depth=2, embed_dim=36, num_heads=3)


def deit():
    return model("deit3_small_patch16_224", img_size=64, depth=2, embed_dim=32, num_heads=4)


def mixed(**options):
    return images(MlpMixer(CLASSES, img_size=64, num_blocks=2, embed_dim=32, **options))


def mixer():
    return mixed()


def gmlp():
    return mixed(block_layer=SpatialGatingBlock, mlp_layer=GatedMlp, mlp_ratio=6)


def resmlp():
    return mixed(block_layer=ResBlock, norm_layer=Affine, mlp_ratio=4)


def convmixer():
    return images(ConvMixer(dim=32, depth=3, kernel_size=7, num_classes=CLASSES))


def poolformer():
    net = MetaFormer(depths=(1, 1, 1, 1), dims=(16, 32, 48, 64), norm_layers=GroupNorm1, layer_scale_init_values=1e-5,
                     res_scale_init_values=None, use_mlp_head=False, num_classes=CLASSES)
    return images(net)


def cait():
    return model("cait_xxs24_224", img_size=64, depth=2, embed_dim=32, num_heads=4)


def xcit():
    return model("xcit_nano_12_p16_224", img_size=64, depth=2, embed_dim=32, num_heads=4)


def coat():
    return model("coat_lite_tiny", img_size=64, embed_dims=(16, 32, 32, 48), serial_depths=(1, 1, 1, 1))


def pvt_v2():
    return model("pvt_v2_b0", depths=(1, 1, 1, 1))


def levit():
    return model("levit_128s", img_size=64, embed_dim=(32, 48, 64), depth=(1, 1, 1), num_heads=(2, 3, 4))


def edgenext():
    return model("edgenext_xx_small", depths=(1, 1, 2, 1))


def efficientformer():
    return model("efficientformer_l1", side=224, depths=(1, 1, 1, 2), embed_dims=(16, 24, 32, 48))


def hrnet():
    return model("hrnet_w18_small")


def dla():
    return model("dla34")


def rexnet():
    return model("rexnet_100", width_mult=0.5)


def ghostnet():
    return model("ghostnet_050")


def nfnet():
    return model("test_nfnet")


def vovnet():
    return model("ese_vovnet19b_slim_dw")


def visformer():
    return model("visformer_tiny", img_size=64, embed_dim=48, num_heads=3, depth=(2, 1, 1))


def res2net():
    return model("res2net50_14w_8s", layers=(1, 1, 1, 1))


def sknet():
    return model("skresnet18", layers=(1, 1, 1, 1))


def botnet():
    return model("botnet26t_256", side=64, img_size=64)


def volo():
    return images(VOLO((1, 1, 1, 1), img_size=64, embed_dims=(24, 48, 48, 48), num_heads=(2, 4, 4, 4),
                       use_mix_token=False, num_classes=CLASSES))


def twins():
    return model("twins_svt_small", img_size=64, embed_dims=(16, 32, 48, 64), depths=(1, 1, 1, 1), num_heads=(1, 2, 3, 4))


def tnt():
    return model("tnt_s_legacy_patch16_224", img_size=64, depth=2, embed_dim=48)


def focalnet():
    return images(FocalNet(num_classes=CLASSES, embed_dim=16, depths=(1, 1, 1, 1)))


def mobilevit():
    return model("mobilevit_xxs")


def fastvit():
    return model("fastvit_t8", layers=(1, 1, 1, 1), embed_dims=(16, 32, 64, 64))


def convnext_v2():
    return model("convnextv2_atto", depths=(1, 1, 1, 1), dims=(16, 24, 32, 48))


def mambaout():
    return model("test_mambaout")


def crossvit():
    return model("crossvit_tiny_240", side=240, embed_dim=(24, 48), depth=((1, 1, 0), (1, 1, 0)))


def davit():
    return model("davit_tiny", depths=(1, 1), embed_dims=(16, 32), num_heads=(1, 2))


def inception_next():
    return model("inception_next_tiny", depths=(1, 1, 1, 1), dims=(16, 24, 32, 48))


def repvgg():
    return model("repvgg_a0")


def coatnet():
    return model("coatnet_0_rw_224", img_size=64, depths=(1, 1, 1, 1), embed_dim=(32, 32, 64, 64))


def hiera():
    return model("hiera_tiny_224", img_size=64, embed_dim=16, stages=(1, 1, 1, 1))
