"""The training steps of `benches/worker` in PyTorch: gradient descent with momentum."""

import torch
import torch.nn.functional as F
from torch import nn

from models import Block


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        width = 256
        self.word = nn.Parameter(torch.randn(512, width) * 0.05)
        self.position = nn.Parameter(torch.randn(64, width) * 0.05)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = F.embedding(tokens, self.word) + self.position
        for block in self.blocks:
            parts = block.joined(block.norm1(x)).chunk(3, -1)
            q, k, v = (p.unflatten(-1, (4, -1)).transpose(1, 2) for p in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + block.out(y.transpose(1, 2).flatten(2))
            x = x + block.outer(F.gelu(block.inner(block.norm2(x))))
        return F.linear(self.norm(x), self.word).flatten(0, 1)


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(),
                         nn.Linear(512, 10))


def case(name, compiled):
    """A step as a function; `None` for an unknown case. `compiled`: forward, backward and update
    by inductor."""
    kind, size = name.split(" ")
    if kind not in ("mlp-eager", "mlp-step", "transformer-eager", "transformer-step"):
        return None
    batch = int(size)
    if kind.startswith("mlp"):
        model, x = mlp(), torch.randn(batch, 784)
        y = torch.randint(0, 10, (batch,))
    else:
        model, x = Decoder(), torch.randint(0, 512, (batch, 64))
        y = torch.randint(0, 512, (batch * 64,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = lambda: F.cross_entropy(model(x), y)
    update = optimizer.step
    if compiled:
        loss, update = torch.compile(loss), torch.compile(update)

    @torch.enable_grad()
    def step():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        update()
        return value.item()

    return step
