"""A peer of `compare.py`: `peer.py eager|inductor|onnxruntime THREADS [DIRECTORY]`.

Reads lines `SECONDS CASE`, runs the case for that long, and prints the least time of a run in
microseconds, or `-` if the peer cannot run it. onnxruntime needs a directory, and leaves there the
program that it runs, as `CASE.onnx`.
"""

import sys
import time
from pathlib import Path

import torch

import models
import training


def onnxruntime_run(model, inputs, threads, file):
    names = [f"input{i}" for i in range(len(inputs))]
    torch.onnx.export(model, inputs, file, input_names=names, dynamo=False)
    import onnxruntime  # tract loads the export even if this fails

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options)
    given = {name: t.numpy() for name, t in zip(names, inputs)}
    return lambda: session.run(None, given)


def prepared(engine, name, threads):
    step = training.case(name, engine == "inductor")
    if step is not None:
        return None if engine == "onnxruntime" else step
    found = models.case(name)
    # Traces of Python loops take minutes, and a cache in place has no form in ONNX.
    if found is None or engine == "inductor" and name.startswith("tiny"):
        return None
    if engine == "onnxruntime" and name.startswith("gpt2"):
        return None
    model, inputs = found
    if engine == "onnxruntime":
        return onnxruntime_run(model, inputs, threads, str(Path(sys.argv[3]) / f"{name}.onnx"))
    if engine == "inductor":
        torch._dynamo.reset()
        model = torch.compile(model)
    return lambda: model(*inputs)


def main():
    engine, threads = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(threads)
    out = sys.stdout
    sys.stdout = sys.stderr  # exporters print
    known, run = None, None
    with torch.no_grad():
        for line in sys.stdin:
            seconds, name = line.rstrip("\n").split(" ", 1)
            if name != known:
                known, run = name, None
                try:
                    run = prepared(engine, name, threads)
                    if run:
                        run()
                        run()
                except Exception as e:
                    print(f"{engine}, {name}: {type(e).__name__}: {e}", file=sys.stderr)
                    run = None
            least, begun = None, time.perf_counter()
            while run and (least is None or time.perf_counter() - begun < float(seconds)):
                start = time.perf_counter()
                run()
                took = (time.perf_counter() - start) * 1e6
                least = took if least is None else min(least, took)
            print("-" if least is None else f"{least:.3f}", file=out, flush=True)


main()
