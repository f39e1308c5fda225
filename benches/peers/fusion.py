"""The cases of `benches/fusion.rs` in PyTorch, eager and compiled by inductor, in microseconds.

    python3 benches/peers/fusion.py [THREADS]

Needs PyTorch and a C++ compiler. Eager and compiled runs take turns; a figure is the least of many.
"""

import sys
import time

import torch
import torch.nn.functional as F


def chain(x, y):
    a = x * y
    b = a + x
    c = torch.relu(b)
    d = c - y
    e = d * 0.5
    f = torch.maximum(e, x)
    g = f + 1.0
    return torch.abs(g)


def masked_softmax(x, m):
    return torch.softmax(x * 0.125 + m, -1)


def norm(x, w, b):
    return F.gelu(F.layer_norm(x, [x.shape[-1]], w, b, 1e-5)) + x


CASES = (
    [(f"8 pointwise operators, {name} elements", chain, [(n,), (n,)])
     for name, n in [("4,096", 4096), ("65,536", 65536), ("1M", 1 << 20), ("16M", 1 << 24)]]
    + [(f"scale, mask, softmax, {r} x {c}", masked_softmax, [(r, c), (c,)])
       for r, c in [(1536, 128), (1024, 1024), (64, 8192)]]
    + [(f"layer norm, gelu, residual, {r} x {c}", norm, [(r, c), (c,), (c,)])
       for r, c in [(128, 384), (1024, 768), (64, 8192)]]
)


def main():
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads")
    print("| case | eager | inductor |")
    print("|---|---|---|")
    for name, f, shapes in CASES:
        torch._dynamo.reset()
        inputs = [torch.randn(shape) for shape in shapes]
        compiled = torch.compile(f)
        with torch.no_grad():
            compiled(*inputs)
            least = [float("inf"), float("inf")]
            begun = time.perf_counter()
            while time.perf_counter() - begun < 1.5:
                for i, g in enumerate((f, compiled)):
                    start = time.perf_counter()
                    g(*inputs)
                    least[i] = min(least[i], (time.perf_counter() - start) * 1e6)
        print(f"| {name} | {least[0]:.1f} | {least[1]:.1f} |", flush=True)


main()
