"""PyTorch's largest errors over a sample of f32, in ULP as `crates/check/src/accuracy/ulp.rs` counts them.

    python3 benches/peers/torch_ulp.py > crates/check/src/accuracy/pytorch.tsv

The sample is every 512th pattern of either sign; functions of two arguments get four million pairs. References are
PyTorch's own f64 functions, which are good to about 2^-28 ULP of f32.
"""

import sys

import torch

UNARY = """exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid
sqrt rsqrt reciprocal""".split()
BINARY = "pow atan2 hypot fmod remainder".split()
LIMIT = 2.0**128


def worst(got, exact):
    """The largest error in ULP of the exact value, and how many results are NaN where the exact value is not, or the reverse."""
    nan = torch.isnan(got) | torch.isnan(exact)
    wrong = int((torch.isnan(got) != torch.isnan(exact)).sum())
    got = got.double()[~nan].clamp(-LIMIT, LIMIT)
    exact = exact[~nan].clamp(-LIMIT, LIMIT)
    exponent = (torch.frexp(exact).exponent - 1).clamp(-126, 127)
    exponent = torch.where(exact == 0, torch.full_like(exponent, -126), exponent)
    error = (got - exact).abs() * torch.exp2((23 - exponent).double())
    return float(error.max()), wrong


def main():
    torch.manual_seed(0)
    patterns = torch.arange(-(2**31), 2**31, 512, dtype=torch.int64).to(torch.int32)
    x = patterns.view(torch.float32)
    n = 4_000_000
    size = lambda lo, hi: torch.exp2(torch.rand(n) * (hi - lo) + lo) * (torch.randint(0, 2, (n,)) * 2 - 1)
    pairs = {name: (size(-10, 10), size(-10, 10)) for name in BINARY}
    pairs["pow"] = (size(-10, 10).abs(), size(-5, 4))
    for name in UNARY + BINARY:
        f = getattr(torch, name)
        if name in pairs:
            a, b = pairs[name]
            result = worst(f(a, b), f(a.double(), b.double()))
        else:
            result = worst(f(x), f(x.double()))
        error, wrong = result
        print(f"{name}\t{error:.4f}" + (f", and {wrong} NaN" if wrong else ""))
        sys.stdout.flush()


main()
