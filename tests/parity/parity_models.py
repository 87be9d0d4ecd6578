"""Models that only tests compare with PyTorch, and those of bench/peers/models.py that tests use."""

import pathlib
import sys

import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/peers"))
import models
from models import GPT, autocast, decay_groups, optimizer


class ToyModel(nn.Module):
    def __init__(self, inputs=10, outputs=5):
        super().__init__()
        self.net1 = nn.Linear(inputs, 10)
        self.net2 = nn.Linear(10, outputs)

    def forward(self, x):
        return self.net2(F.relu(self.net1(x.flatten(1))))


class ConvBlock(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()


class SegNet(nn.Module):
    def __init__(self, channels, classes, full=16, half=32, quarter=32):
        super().__init__()
        self.enc1 = nn.Sequential(ConvBlock(channels, full), ConvBlock(full, full))
        self.enc2 = nn.Sequential(ConvBlock(full, half), ConvBlock(half, half))
        self.middle = nn.Sequential(ConvBlock(half, quarter), ConvBlock(quarter, half))
        self.dec2 = ConvBlock(half, full)
        self.dec1 = ConvBlock(full, full)
        self.head = nn.Conv2d(full, classes, 1)

    def forward(self, x):
        full = self.enc1(x)
        half = self.enc2(F.max_pool2d(full, 2))
        y = self.middle(F.max_pool2d(half, 2))
        y = self.dec2(F.interpolate(y, scale_factor=2, mode="nearest") + half)
        y = self.dec1(F.interpolate(y, scale_factor=2, mode="nearest") + full)
        return self.head(y)


def build(name, shape, outputs, hidden=()):
    """Like models.build."""
    if name == "toy":
        return ToyModel(shape[0] * shape[1] * shape[2], outputs)
    if name == "segnet":
        return SegNet(shape[0], outputs)
    return models.build(name, shape, outputs, hidden)


def keep_float32(model):
    """Outputs of products are rounded to 16 bits and stored in float32, as in our kernels, so that batch norm's
    outputs, which PyTorch would store in 16 bits too, are not rounded."""
    for module in model.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            module.register_forward_hook(lambda module, inputs, output: output.float())


def pixel_loss(output, target, threshold=float("-inf"), least=0):
    """OHEM for segmentation: the losses above the threshold, or the `least` hardest pixels."""
    losses = F.cross_entropy(output, target, ignore_index=-1, reduction="none")[target >= 0]
    losses = losses.sort(descending=True).values
    above = int((losses > threshold).sum())
    return losses[:max(above, least)].mean()
