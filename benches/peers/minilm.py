"""A network of the sizes of all-MiniLM-L6-v2 in PyTorch (eager, inductor) and onnxruntime, in ms.

    python3 benches/peers/minilm.py [THREADS]

Weights are random: they do not matter for the time. Needs PyTorch; onnxruntime and onnx where they
are installed. The engines take turns; a figure is the least of many. `cargo run --release --example
minilm -- --time` measures ours.
"""

import io
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HEADS, WIDTH, INNER, VOCABULARY = 6, 12, 384, 1536, 30522


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.inner, self.outer = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, 1e-12), nn.LayerNorm(WIDTH, 1e-12)

    def forward(self, x, allowed):
        batch, length, _ = x.shape
        split = lambda t: t.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        y = y.transpose(1, 2).reshape(batch, length, WIDTH)
        x = self.norm1(self.out(y) + x)
        return self.norm2(self.outer(F.gelu(self.inner(x))) + x)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(512, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, 1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids, mask):
        x = self.word(ids) + self.position.weight[: ids.shape[1]]
        x = self.norm(x)
        allowed = mask[:, None, None, :].bool()
        for layer in self.layers:
            x = layer(x, allowed)
        words = mask[:, :, None].to(x.dtype)
        mean = (x * words).sum(1) / words.sum(1)
        return F.normalize(mean)


def onnx_session(model, inputs, threads):
    try:
        import onnxruntime
    except ImportError:
        return None
    try:
        buffer = io.BytesIO()
        torch.onnx.export(model, inputs, buffer, input_names=["ids", "mask"], dynamo=False)
    except Exception as e:  # the exporter of this PyTorch needs packages that are not there
        print(f"no onnxruntime: {type(e).__name__}: {str(e).splitlines()[0]}")
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(buffer.getvalue(), options)
    given = {"ids": inputs[0].numpy(), "mask": inputs[1].numpy()}
    return lambda: session.run(None, given)


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    torch.set_num_threads(threads)
    print(f"PyTorch {torch.__version__}, {threads} threads, ms")
    model = Encoder().eval()
    with torch.no_grad():
        for batch, length in [(1, 16), (1, 128), (4, 128), (8, 128)]:
            inputs = (torch.full((batch, length), 2000), torch.ones(batch, length, dtype=torch.long))
            torch._dynamo.reset()
            compiled = torch.compile(model)
            engines = {"eager": lambda: model(*inputs), "inductor": lambda: compiled(*inputs)}
            session = onnx_session(model, inputs, threads)
            if session:
                engines["onnxruntime"] = session
            least = {}
            for name, run in engines.items():
                run()
                least[name] = float("inf")
            begun = time.perf_counter()
            while time.perf_counter() - begun < 4:
                for name, run in engines.items():
                    start = time.perf_counter()
                    run()
                    least[name] = min(least[name], (time.perf_counter() - start) * 1e3)
            figures = ", ".join(f"{name} {ms:.2f}" for name, ms in least.items())
            print(f"{batch} x {length}: {figures}", flush=True)


main()
