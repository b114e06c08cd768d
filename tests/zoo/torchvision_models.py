"""Models of torchvision with few blocks and channels: FILE.py:FUNCTION as a user writes it."""

import torch
from small import CLASSES, images
from torch import nn
from torchvision import models
from torchvision.models import segmentation, video
from torchvision.models.convnext import CNBlockConfig
from torchvision.models.efficientnet import FusedMBConvConfig, MBConvConfig
from torchvision.models.mobilenetv3 import InvertedResidualConfig
from torchvision.models.optical_flow.raft import raft_small
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.models.video.mvit import MSBlockConfig, MViT


def head(width, side):
    """In place of the wide layers over the features of AlexNet and VGG."""
    return nn.Sequential(nn.Linear(width * side * side, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, CLASSES))


def alexnet():
    net = models.alexnet()
    net.classifier = head(256, 6)
    return images(net, side=96)


def vgg11():
    net = models.vgg11()
    net.avgpool, net.classifier = nn.AdaptiveAvgPool2d(2), head(512, 2)
    return images(net, side=48)


def vgg11_bn():
    net = models.vgg11_bn()
    net.avgpool, net.classifier = nn.AdaptiveAvgPool2d(2), head(512, 2)
    return images(net)


def resnet(block, layers=(1, 1, 1, 1), **options):
    return images(ResNet(block, list(layers), num_classes=CLASSES, **options))


def resnet18():
    return resnet(BasicBlock, (2, 2, 2, 2))


def resnet50():
    return resnet(Bottleneck)


def resnext50():
    return resnet(Bottleneck, groups=8, width_per_group=4)


def wide_resnet50():
    return resnet(Bottleneck, width_per_group=128)


def densenet():
    net = models.DenseNet(growth_rate=8, block_config=(2, 3, 2), num_init_features=16, num_classes=CLASSES)
    return images(net)


def googlenet():
    return images(models.GoogLeNet(num_classes=CLASSES, aux_logits=False, init_weights=False))


def inception_v3():
    return images(models.Inception3(num_classes=CLASSES, aux_logits=False, init_weights=False), side=107)


def mobilenet_v2():
    return images(models.MobileNetV2(CLASSES, width_mult=0.35), side=128)


def mobilenet_v3():
    blocks = [
        InvertedResidualConfig(16, 3, 16, 16, True, "RE", 2, 1, 1),
        InvertedResidualConfig(16, 3, 48, 24, False, "RE", 2, 1, 1),
        InvertedResidualConfig(24, 5, 64, 24, True, "HS", 1, 1, 1),
        InvertedResidualConfig(24, 5, 64, 32, True, "HS", 2, 1, 1),
    ]
    return images(models.MobileNetV3(blocks, 64, num_classes=CLASSES))


def mnasnet():
    return images(models.MNASNet(0.35, CLASSES), side=128)


def shufflenet():
    return images(models.ShuffleNetV2([2, 2, 2], [24, 32, 64, 96, 128], CLASSES))


def squeezenet():
    return images(models.squeezenet1_1(num_classes=CLASSES))


def efficientnet():
    blocks = [
        MBConvConfig(1, 3, 1, 16, 16, 1),
        MBConvConfig(4, 3, 2, 16, 24, 2),
        MBConvConfig(4, 5, 2, 24, 40, 1),
    ]
    return images(models.EfficientNet(blocks, 0.2, last_channel=64, num_classes=CLASSES))


def efficientnet_v2():
    blocks = [
        FusedMBConvConfig(1, 3, 1, 16, 16, 1),
        FusedMBConvConfig(4, 3, 2, 16, 24, 2),
        MBConvConfig(4, 3, 2, 24, 40, 1),
    ]
    return images(models.EfficientNet(blocks, 0.2, last_channel=64, num_classes=CLASSES))


def regnet():
    return images(models.regnet_y_400mf(num_classes=CLASSES))


def convnext():
    blocks = [CNBlockConfig(16, 32, 1), CNBlockConfig(32, 48, 1), CNBlockConfig(48, None, 1)]
    return images(models.ConvNeXt(blocks, 0.1, num_classes=CLASSES))


def vit():
    return images(models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=CLASSES), side=32)


def swin():
    net = models.SwinTransformer([4, 4], 16, [1, 2], [2, 4], [4, 4], num_classes=CLASSES, stochastic_depth_prob=0.1)
    return images(net)


def swin_v2():
    from torchvision.models.swin_transformer import PatchMergingV2, SwinTransformerBlockV2

    net = models.SwinTransformer(
        [4, 4], 16, [1, 2], [2, 4], [4, 4], num_classes=CLASSES, block=SwinTransformerBlockV2,
        downsample_layer=PatchMergingV2,
    )
    return images(net)


def maxvit():
    net = models.MaxVit((64, 64), 16, 4, [16, 32], [1, 1], 8, 0.2, num_classes=CLASSES)
    return images(net)


def dilated(*layers):
    net = ResNet(Bottleneck, layers, replace_stride_with_dilation=[False, True, True])
    return models._utils.IntermediateLayerGetter(net, {"layer4": "out"})


def fcn():
    net = segmentation.FCN(dilated(1, 1, 1, 1), segmentation.fcn.FCNHead(2048, CLASSES))
    return images(net, side=32, label=(32, 32))


def deeplab_v3():
    net = segmentation.DeepLabV3(dilated(1, 1, 1, 1), segmentation.deeplabv3.DeepLabHead(2048, CLASSES, (2, 4)))
    return images(net, side=32, label=(32, 32))


def lraspp():
    net = segmentation.lraspp_mobilenet_v3_large(weights_backbone=None, num_classes=CLASSES)
    return images(net, label=(64, 64))


def r3d():
    from torchvision.models.video.resnet import BasicBlock, BasicStem, Conv3DSimple

    net = video.VideoResNet(BasicBlock, [Conv3DSimple] * 4, [1, 1, 1, 1], BasicStem, num_classes=CLASSES)
    return images(net, side=32, depth=8)


def mvit():
    def block(heads, channels, out, stride):
        return MSBlockConfig(heads, channels, out, [3, 3, 3], [3, 3, 3], stride, [1, 2, 2])

    blocks = [block(1, 16, 32, [1, 1, 1]), block(2, 32, 32, [1, 2, 2])]
    net = MViT((32, 32), 8, blocks, False, False, False, 0.0, num_classes=CLASSES)
    return images(net, side=32, depth=8)


class Flow(nn.Module):
    """RAFT with the mean error of its refined flows."""

    def __init__(self):
        super().__init__()
        self.net = raft_small()

    def forward(self, first, second, flow):
        found = self.net(first, second, num_flow_updates=2)
        return sum((each - flow).abs().mean() for each in found)


def raft():
    torch.manual_seed(1)
    shape = (8, 3, 128, 128)
    return Flow(), (torch.rand(shape), torch.rand(shape), torch.randn(8, 2, 128, 128))
