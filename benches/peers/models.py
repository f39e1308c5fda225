"""The cases of `benches/worker` in PyTorch: modules with random weights, and their inputs."""

import torch
import torch.nn.functional as F
from torch import nn


class Pointwise(nn.Module):
    def forward(self, x, y):
        e = (F.relu(x * y + x) - y) * 0.5
        return torch.abs(torch.maximum(e, x) + 1.0)


class Softmax(nn.Module):
    def forward(self, x, m):
        return torch.softmax(x * 0.125 + m, -1)


class Attention(nn.Module):
    """Attention by products and a softmax, which is not `scaled_dot_product_attention`."""

    def forward(self, q, k, v, mask):
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5 + mask
        return torch.softmax(scores, -1) @ v


class Norm(nn.Module):
    def forward(self, x, w, b):
        return F.gelu(F.layer_norm(x, [x.shape[-1]], w, b, 1e-5)) + x


class Product(nn.Module):
    def __init__(self, inner, out):
        super().__init__()
        self.linear = nn.Linear(inner, out)

    def forward(self, x):
        return F.gelu(self.linear(x))


class Tiny(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.count = count
        self.weight = nn.Parameter(torch.tensor([[0.8, 0.6], [-0.6, 0.8]]))

    def forward(self, x):
        for _ in range(self.count):
            x = x.mm(self.weight)
        return x


class Layer(nn.Module):
    def __init__(self, width, inner, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.inner, self.outer = nn.Linear(width, inner), nn.Linear(inner, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x, allowed):
        batch, length, width = x.shape
        split = lambda t: t.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        y = y.transpose(1, 2).reshape(batch, length, width)
        x = self.norm1(self.out(y) + x)
        return self.norm2(self.outer(F.gelu(self.inner(x))) + x)


class Encoder(nn.Module):
    def __init__(self, layers, heads, width, inner):
        super().__init__()
        self.word, self.position = nn.Embedding(30522, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, inner, heads) for _ in range(layers))

    def forward(self, ids, mask):
        x = self.norm(self.word(ids) + self.position.weight[: ids.shape[1]])
        allowed = mask[:, None, None, :].bool()
        for layer in self.layers:
            x = layer(x, allowed)
        words = mask[:, :, None].to(x.dtype)
        return F.normalize((x * words).sum(1) / words.sum(1))


def conv(inner, out, kernel, stride=1, groups=1, then=None):
    parts = [
        nn.Conv2d(inner, out, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(out),
    ]
    return nn.Sequential(*parts, *([then()] if then else []))


class Fire(nn.Module):
    def __init__(self, inner, squeezed, expanded):
        super().__init__()
        self.squeeze = nn.Conv2d(inner, squeezed, 1)
        self.narrow = nn.Conv2d(squeezed, expanded, 1)
        self.wide = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x):
        x = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.narrow(x)), F.relu(self.wide(x))], 1)


def squeezenet():
    sizes = [(64, 16, 64), (128, 16, 64), (128, 32, 128), (256, 32, 128), (256, 48, 192),
             (384, 48, 192), (384, 64, 256), (512, 64, 256)]
    fires = [Fire(*size) for size in sizes]
    for at in (4, 2):
        fires.insert(at, nn.MaxPool2d(3, 2))
    return nn.Sequential(nn.Conv2d(3, 64, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2), *fires,
                         nn.Conv2d(512, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())


class Residual(nn.Module):
    def __init__(self, inner, out, stride):
        super().__init__()
        self.first, self.second = conv(inner, out, 3, stride, then=nn.ReLU), conv(out, out, 3)
        self.short = conv(inner, out, 1, stride) if stride == 2 else nn.Identity()

    def forward(self, x):
        return F.relu(self.second(self.first(x)) + self.short(x))


def resnet18():
    blocks, inner = [], 64
    for stage, out in enumerate([64, 128, 256, 512]):
        for block in range(2):
            blocks.append(Residual(inner, out, 2 if stage and not block else 1))
            inner = out
    return nn.Sequential(conv(3, 64, 7, 2, then=nn.ReLU), nn.MaxPool2d(3, 2, 1), *blocks,
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


class Inverted(nn.Module):
    def __init__(self, inner, out, factor, stride):
        super().__init__()
        wide = inner * factor
        wider = [conv(inner, wide, 1, then=nn.ReLU6)] if factor > 1 else []
        planes = conv(wide, wide, 3, stride, groups=wide, then=nn.ReLU6)
        self.parts = nn.Sequential(*wider, planes, conv(wide, out, 1))
        self.is_residual = stride == 1 and inner == out

    def forward(self, x):
        return self.parts(x) + x if self.is_residual else self.parts(x)


def mobilenet2():
    blocks, inner = [], 32
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
              (6, 160, 3, 2), (6, 320, 1, 1)]
    for factor, out, count, stride in stages:
        for i in range(count):
            blocks.append(Inverted(inner, out, factor, 1 if i else stride))
            inner = out
    return nn.Sequential(conv(3, 32, 3, 2, then=nn.ReLU6), *blocks,
                         conv(320, 1280, 1, then=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(1280, 1000))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joined, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)


class Gpt2(nn.Module):
    """One step of decoding. The caches are written in place."""

    def __init__(self, at):
        super().__init__()
        self.at, self.heads, width = at, 12, 768
        self.word = nn.Parameter(torch.randn(50257, width) * 0.02)
        self.position = nn.Parameter(torch.randn(1024, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width) for _ in range(12))
        self.norm = nn.LayerNorm(width)

    def forward(self, token, *caches):
        x = self.word[token] + self.position[self.at : self.at + 1]
        for i, block in enumerate(self.blocks):
            parts = block.joined(block.norm1(x)).chunk(3, -1)
            q, k, v = (p.view(1, self.heads, -1).transpose(0, 1) for p in parts)
            keys, values = caches[2 * i], caches[2 * i + 1]
            keys[:, self.at : self.at + 1] = k
            values[:, self.at : self.at + 1] = v
            keys, values = keys[:, : self.at + 1], values[:, : self.at + 1]
            y = F.scaled_dot_product_attention(q[None], keys[None], values[None])[0]
            x = x + block.out(y.transpose(0, 1).reshape(1, -1))
            x = x + block.outer(F.gelu(block.inner(block.norm2(x)), approximate="tanh"))
        return F.linear(self.norm(x), self.word)


def encoder(sizes, batch, length):
    ids = torch.full((batch, length), 2000)
    return Encoder(*sizes), (ids, torch.ones(batch, length, dtype=torch.long))


def attention(batch, heads, length, width):
    q, k, v = (torch.randn(batch, heads, length, width) for _ in range(3))
    return Attention(), (q, k, v, torch.zeros(batch, 1, 1, length))


def case(name):
    """The module and the inputs of a case; `None` for an unknown one."""
    kind, sizes = name.split(" ")
    sizes = [int(n) for n in sizes.split("x")]
    image = lambda: (torch.randn(sizes[0], 3, 224, 224),)
    vector = lambda: torch.randn(sizes[-1])
    cases = {
        "pointwise": lambda: (Pointwise(), (vector(), vector())),
        "softmax": lambda: (Softmax(), (torch.randn(sizes), vector())),
        "attention": lambda: attention(*sizes),
        "attention-fast": lambda: attention(*sizes),
        "norm": lambda: (Norm(), (torch.randn(sizes), vector(), vector())),
        "linear": lambda: (Product(*sizes[1:]), (torch.randn(sizes[:2]),)),
        "tiny": lambda: (Tiny(sizes[0]), (torch.randn(2, 2),)),
        "minilm": lambda: encoder((6, 12, 384, 1536), *sizes),
        "bert": lambda: encoder((12, 12, 768, 3072), *sizes),
        "squeezenet": lambda: (squeezenet(), image()),
        "resnet18": lambda: (resnet18(), image()),
        "mobilenet2": lambda: (mobilenet2(), image()),
        "gpt2": lambda: (Gpt2(sizes[0]), (torch.tensor([464]),
                                          *(torch.randn(12, 1024, 64) for _ in range(24)))),
    }
    if kind not in cases:
        return None
    model, inputs = cases[kind]()
    return model.eval(), inputs
