"""Compiled programs beside PyTorch (eager, inductor) and onnxruntime: the same work in turn.

    python3 benches/peers/compare.py [--threads N] [--rounds N] [--seconds S] [CASE...]

Each engine is a process. For each case they run one after another, round after round, so that all
see the same machine; a figure is the least time of all rounds. Without cases, all are run. Prints a
table in Markdown. An engine that is not installed has no figures.
"""

import argparse
import os
import subprocess
import sys
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


class Engine:
    def __init__(self, name, command, threads):
        self.name = name
        env = {**os.environ, "MAQUETTE_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
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
    peer = lambda name: [sys.executable, str(HERE / "peer.py"), name, str(options.threads)]
    engines = [Engine("maquette", ours, options.threads)]
    for name in ("eager", "inductor", "onnxruntime"):
        engines.append(Engine(name, peer(name), options.threads))

    print("| case | maquette | PyTorch eager | inductor | onnxruntime | ours / fastest peer |")
    print("|---|--:|--:|--:|--:|--:|")
    for case in options.cases:
        least = {}
        for _ in range(options.rounds):
            for engine in engines:
                took = engine.run(case, options.seconds)
                if took is not None:
                    least[engine.name] = min(took, least.get(engine.name, took))
        own = least.pop("maquette", None)
        figure = lambda t: "" if t is None else f"{t:,.1f}" if t < 1000 else f"{t:,.0f}"
        row = [figure(own)] + [figure(least.get(e.name)) for e in engines[1:]]
        ratio = f"{own / min(least.values()):.2f}" if own and least else ""
        print(f"| {case} | {' | '.join(row)} | {ratio} |", flush=True)


main()
