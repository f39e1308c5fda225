"""The cases of `benches/kernels.rs` in PyTorch: `torch_kernels.py THREADS NAME…` prints name, tab, seconds a call."""

import statistics
import sys
import time

import torch
import torch.nn.functional as F

N = 16 * 1024 * 1024


def cases():
    r = torch.randn
    x4, y4, a2, b2 = r(4), r(4), r(2, 2), r(2, 2)
    yield "add, 4 elements", lambda: x4 + y4
    yield "relu, 4 elements", lambda: x4.relu()
    yield "sum, 4 elements", lambda: x4.sum()
    yield "softmax, 4 elements", lambda: x4.softmax(0)
    yield "slice, 4 elements", lambda: x4[1:3]
    yield "matmul, 2x2", lambda: a2 @ b2
    s22, x14, t82, i2 = r(2, 2), r(1, 4), r(8, 2), torch.tensor([1, 5])
    yield "amax, 4 elements", lambda: s22.amax([1])
    yield "layer_norm, 4 elements", lambda: F.layer_norm(x14, [4])
    yield "embedding, 4 elements", lambda: F.embedding(i2, t82)
    fresh = iter(range(1 << 62))
    yield "mul by a fresh number, 4 elements", lambda: x4 * float(next(fresh))
    yield "full of a fresh number, 4 elements", lambda: torch.full([4], float(next(fresh)))
    x, y = r(N), r(N)
    for name, f in [
        ("relu", torch.relu),
        ("exp", torch.exp),
        ("tanh", torch.tanh),
        ("sigmoid", torch.sigmoid),
        ("gelu", F.gelu),
        ("log", torch.log),
        ("sin", torch.sin),
        ("mul by a number", lambda x: x * 2.0),
    ]:
        yield f"{name}, 16M", lambda f=f: f(x)
    yield "add, 16M", lambda: x + y
    base = r(N)
    yield "add_, 16M", lambda: base.add_(y)
    h, g = x.bfloat16(), y.bfloat16()
    yield "add bf16, 16M", lambda: h + g
    m, row = r(4096, 4096), r(4096)
    yield "add a row, 4096x4096", lambda: m + row
    yield "copy of a transpose, 4096x4096", lambda: m.t().contiguous()
    z, w, b = r(4096, 1024), r(1024), r(1024)
    for name, f in [
        ("softmax", lambda: z.softmax(1)),
        ("log_softmax", lambda: z.log_softmax(1)),
        ("sum of rows", lambda: z.sum([1])),
        ("sum of columns", lambda: z.sum([0])),
        ("sum", lambda: z.sum()),
        ("max of rows", lambda: z.amax([1])),
        ("argmax of rows", lambda: z.argmax(1)),
        ("cumsum of rows", lambda: z.cumsum(1)),
        ("layer_norm", lambda: F.layer_norm(z, [1024], w, b)),
    ]:
        yield f"{name}, 4096x1024", f
    for rows, columns, shape in [
        (64, 64, "64x64"),
        (256, 256, "256x256"),
        (128, 8192, "128x8192"),
        (16, 1 << 18, "16x256K"),
    ]:
        few = r(rows, columns)
        yield f"sum of rows, {shape}", lambda few=few: few.sum([1])
        yield f"max of rows, {shape}", lambda few=few: few.amax([1])
    long = r(1024 * 1024)
    yield "sort, 1M", lambda: long.sort()[0]
    for i, k, j in [(128, 384, 384), (128, 384, 1536), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048)]:
        p, q = r(i, k), r(k, j)
        yield f"matmul, {i}x{k}x{j}", lambda p=p, q=q: p @ q
    lx, lw, lb = r(1024, 384), r(1536, 384), r(1536)
    yield "linear, 1024x384x1536", lambda: F.linear(lx, lw, lb)
    ba, bb = r(96, 128, 64), r(96, 64, 128)
    yield "bmm, 96 of 128x64x128", lambda: ba @ bb
    cx, cw = r(8, 64, 56, 56), r(64, 64, 3, 3)
    yield "conv2d 3x3, 8x64x56x56", lambda: F.conv2d(cx, cw, None, 1, 1)
    q, k, v = r(8, 12, 128, 32), r(8, 12, 128, 32), r(8, 12, 128, 32)
    yield "attention, 8x12x128x32", lambda: F.scaled_dot_product_attention(q, k, v)
    table, ids = r(30522, 384), torch.arange(8192) * 7919 % 30522
    yield "embedding, 8192 of 30522x384", lambda: F.embedding(ids, table)
    yield "index_select, 8192 of 30522x384", lambda: table.index_select(0, ids)
    c, d = r(4096, 1024), r(4096, 1024)
    yield "cat, 2 of 4096x1024", lambda: torch.cat([c, d], 1)
    im, iw, ib, mean, var = r(8, 64, 56, 56), r(64), r(64), r(64), r(64).exp()
    dw = r(64, 1, 3, 3)
    for name, f in [
        ("max_pool2d 3x3 by 2", lambda: F.max_pool2d(im, 3, 2, 1)),
        ("avg_pool2d 2x2", lambda: F.avg_pool2d(im, 2, 2)),
        ("adaptive_avg_pool2d 1", lambda: F.adaptive_avg_pool2d(im, 1)),
        ("pad by 1", lambda: F.pad(im, (1, 1, 1, 1))),
        ("group_norm of 8", lambda: F.group_norm(im, 8)),
        ("batch_norm", lambda: F.batch_norm(im, mean, var, iw, ib)),
        ("depthwise conv2d 3x3", lambda: F.conv2d(im, dw, None, 1, 1, 1, 64)),
    ]:
        yield f"{name}, 8x64x56x56", f
    into, source, at = r(64 << 10), r(1 << 20), torch.arange(1 << 20) * 7919 % (64 << 10)
    yield "scatter_add, 1M into 64K", lambda: into.scatter_add(0, at, source)
    yield "randn, 1M", lambda: r(1 << 20)
    yield "zeros, 16M", lambda: torch.zeros(16 << 20)
    yield "arange, 1M", lambda: torch.arange(0, 1 << 20)
    yield "tril, 4096x4096", lambda: m.tril()
    v1, v2, mm, mv = r(1 << 20), r(1 << 20), r(4096, 1024), r(1024)
    yield "dot, 1M", lambda: v1 @ v2
    yield "mv, 4096x1024", lambda: mm @ mv


def sample(run, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        run()
    return time.perf_counter() - begin


def seconds(run):
    calls = 1
    while sample(run, calls) < 0.02:
        calls *= 2
    return statistics.median(sample(run, calls) / calls for _ in range(9))


torch.set_num_threads(int(sys.argv[1]))
with torch.inference_mode():
    for name, run in cases():
        if name in sys.argv[2:]:
            print(f"{name}\t{seconds(run)}", flush=True)
