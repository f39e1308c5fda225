"""Compiled programs beside PyTorch, onnxruntime, candle and tract: the same work in turn.

    python3 benches/peers/compare.py [--threads N] [--rounds N] [--seconds S] [CASE...]

Each engine is a process. For each case they run one after another, round after round, so that all
see the same machine; a figure is the least time of all rounds. Without cases, all are run. Prints a
table in Markdown. A package of Python that is not installed has no figures. candle and tract have
columns if `rust/` is built.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CASES = (
    [f"pointwise {n}" for n in (4096, 65536, 1 << 20, 1 << 24)]
    + [f"softmax {size}" for size in ("1536x128", "1024x1024", "64x8192")]
    + [f"attention{way} 1x12x128x32" for way in ("", "-fast")]
    + [f"norm {size}" for size in ("128x384", "1024x768", "64x8192")]
    + [f"linear {size}" for size in ("1x768x3072", "128x384x1536", "512x768x3072")]
    + [f"minilm {size}" for size in ("1x16", "1x128", "4x128", "8x128")]
    + [f"bert {size}" for size in ("1x16", "1x128")]
    + [f"{net} {n}" for net in ("squeezenet", "resnet18", "mobilenet2") for n in (1, 8)]
    + ["gpt2 512", "tiny 1000"]
    + [f"{net}-{way} {n}" for net, n in (("mlp", 64), ("transformer", 8)) for way in ("eager", "step")]
)
HERE = Path(__file__).resolve().parent
NAMES = {"eager": "PyTorch eager"}
# The built worker of `rust/`, where its `.cargo/config.toml` puts it.
IN_RUST = HERE.parents[1] / "target" / "peers-rust" / "release" / "maquette-peers"


class Engine:
    def __init__(self, name, command, threads):
        self.name = name
        limits = ("MAQUETTE_NUM_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS")
        env = {**os.environ, **{limit: str(threads) for limit in limits}}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=env, text=True)

    def run(self, case, seconds):
        try:
            self.process.stdin.write(f"{seconds} {case}\n")
            self.process.stdin.flush()
            return float(self.process.stdout.readline())
        except (BrokenPipeError, ValueError):
            return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.6)
    parser.add_argument("cases", nargs="*", default=CASES)
    options = parser.parse_args()

    ours = ["cargo", "bench", "-q", "-p", "maquette-benches", "--bench", "worker"]
    subprocess.run([*ours, "--no-run"], cwd=HERE, check=True)
    with tempfile.TemporaryDirectory() as programs:
        compare(engines(ours, options.threads, programs), options, Path(programs))


def engines(ours, threads, programs):
    """The engines in the order of a round: onnxruntime exports the programs that tract loads."""
    peer = lambda *args: [sys.executable, str(HERE / "peer.py"), *args]
    commands = {
        "maquette": ours,
        "eager": peer("eager", str(threads)),
        "inductor": peer("inductor", str(threads)),
        "onnxruntime": peer("onnxruntime", str(threads), programs),
    }
    if IN_RUST.exists():
        commands["candle"] = [str(IN_RUST), "candle"]
        commands["tract"] = [str(IN_RUST), "tract", programs]
    return [Engine(name, command, threads) for name, command in commands.items()]


def compare(engines, options, programs):
    columns = [NAMES.get(engine.name, engine.name) for engine in engines]
    print(f"| case | {' | '.join(columns)} | ours / fastest peer |")
    print(f"|---|{'--:|' * (len(columns) + 1)}")
    for case in options.cases:
        least = {}
        for _ in range(options.rounds):
            for engine in engines:
                took = engine.run(case, options.seconds)
                if took is not None:
                    least[engine.name] = min(took, least.get(engine.name, took))
        for file in programs.iterdir():
            file.unlink()
        own = least.pop("maquette", None)
        figure = lambda t: "" if t is None else f"{t:,.1f}" if t < 1000 else f"{t:,.0f}"
        row = [figure(own)] + [figure(least.get(e.name)) for e in engines[1:]]
        ratio = f"{own / min(least.values()):.2f}" if own and least else ""
        print(f"| {case} | {' | '.join(row)} | {ratio} |", flush=True)


main()
