"""The project's models as PyTorch modules: the same names, the same order, the same arithmetic.

Those that only tests compare are in tests/parity/parity_models.py."""

import torch
import torch.nn.functional as F
from torch import nn


class MLP(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.count = len(sizes) - 1
        for i in range(self.count):
            setattr(self, f"fc{i + 1}", nn.Linear(sizes[i], sizes[i + 1]))

    def forward(self, x):
        x = x.flatten(1)
        for i in range(self.count):
            x = getattr(self, f"fc{i + 1}")(x)
            if i + 1 < self.count:
                x = F.relu(x)
        return x


class ConvNet(nn.Module):
    def __init__(self, channels, size, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(32)
        self.fc = nn.Linear(32 * (size // 4) ** 2, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.pad = stride, (outputs - inputs) // 2

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        s = self.stride
        shortcut = F.pad(x[:, :, ::s, ::s], (0, 0, 0, 0, self.pad, self.pad))
        return F.relu(y + shortcut)


class ResNet20(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = self.stage(16, 16, 1)
        self.layer2 = self.stage(16, 32, 2)
        self.layer3 = self.stage(32, 64, 2)
        self.fc = nn.Linear(64, classes)

    @staticmethod
    def stage(inputs, outputs, stride):
        return nn.Sequential(BasicBlock(inputs, outputs, stride), BasicBlock(outputs, outputs, 1),
                             BasicBlock(outputs, outputs, 1))

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        parts = self.c_attn(x).chunk(3, dim=2)
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(heads, width)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(width, 4 * width), c_proj=nn.Linear(4 * width, width)))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """nanoGPT's names; logits [texts times tokens, vocabulary]."""

    def __init__(self, vocabulary, layers=4, heads=4, embedding=128, context=64):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(vocabulary, embedding), wpe=nn.Embedding(context, embedding),
            h=nn.ModuleList(Block(heads, embedding) for _ in range(layers)), ln_f=nn.LayerNorm(embedding)))
        self.lm_head = nn.Linear(embedding, vocabulary, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, 0, 0.02 / (2 * layers) ** 0.5 if "c_proj" in name else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens):
        body = self.transformer
        x = body.wte(tokens) + body.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in body.h:
            x = block(x)
        return self.lm_head(body.ln_f(x)).flatten(0, 1)


def build(name, shape, outputs, hidden=()):
    """shape: (channels, height, width) of one sample; of gpt (layers, heads, embedding, context)."""
    if name == "gpt":
        return GPT(outputs, *shape)
    inputs = shape[0] * shape[1] * shape[2]
    if name == "mlp":
        return MLP([inputs, *hidden, outputs])
    if name == "convnet":
        return ConvNet(shape[0], shape[1], outputs)
    return ResNet20(shape[0], outputs)


def autocast(amp, kind="cpu"):
    """PyTorch's autocast for `--amp bf16` or `fp16`; otherwise a context without effect. Compute the loss outside,
    on output.float(): inside, autocast on CPUs and GPUs differ."""
    dtype = dict(bf16=torch.bfloat16, fp16=torch.float16).get(amp)
    return torch.autocast(kind, dtype, enabled=dtype is not None)


def decay_groups(parameters, weight_decay):
    """nanoGPT's: weights of products and tables decay, biases and layer norms do not."""
    parameters = list(parameters)
    return [dict(params=[p for p in parameters if p.dim() > 1], weight_decay=weight_decay),
            dict(params=[p for p in parameters if p.dim() < 2], weight_decay=0.0)]


def optimizer(name, parameters, lr, momentum=0.9, weight_decay=0.0, nesterov=False, **moments):
    """moments: betas, eps of Adam and AdamW."""
    if name != "sgd":
        kind = dict(adam=torch.optim.Adam, adamw=torch.optim.AdamW)[name]
        return kind(parameters, lr, weight_decay=weight_decay, **moments)
    return torch.optim.SGD(parameters, lr, momentum, weight_decay=weight_decay, nesterov=nesterov)
