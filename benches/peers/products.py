"""The products of `benches/products.rs` elsewhere: `products.py torch|onnxruntime THREADS [MxKxN…]`.

The weights are constants. onnxruntime packs them ahead, PyTorch multiplies by a row-major matrix
and by a transposed one, as `linear` has it. Prints GFLOP/s, of the best sample and of the median.
"""

import sys
import time

SHAPES = [(m, k, n) for m in (1, 16, 128, 1024) for k, n in ((384, 384), (384, 1152), (384, 1536), (1536, 384))]
SHAPES += [(n, n, n) for n in (512, 1024)]


def torch_runs(threads, m, k, n):
    import torch

    torch.set_num_threads(threads)
    with torch.inference_mode():
        x, w, t = torch.rand(m, k) - 0.5, torch.rand(k, n) - 0.5, torch.rand(n, k) - 0.5

        def run(f):
            with torch.inference_mode():
                return f()

        yield "row-major", lambda: run(lambda: x @ w)
        yield "transposed", lambda: run(lambda: torch.nn.functional.linear(x, t))


def onnxruntime_runs(threads, m, k, n):
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    w = np.random.uniform(-1, 1, (k, n)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [m, k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [m, n])],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = np.random.uniform(-1, 1, (m, k)).astype(np.float32)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x))
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(np.zeros((m, n), np.float32)))
    yield "packed", lambda: session.run_with_iobinding(binding)


def sample(run, calls):
    begin = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - begin) / calls


runs = {"torch": torch_runs, "onnxruntime": onnxruntime_runs}[sys.argv[1]]
for m, k, n in SHAPES:
    if len(sys.argv) > 3 and f"{m}x{k}x{n}" not in sys.argv[3:]:
        continue
    for name, run in runs(int(sys.argv[2]), m, k, n):
        calls = 1
        for _ in range(5):
            run()
        while sample(run, calls) * calls < 1e-3:
            calls *= 2
        times = sorted(sample(run, calls) for _ in range(61))
        rates = [2 * m * k * n / t / 1e9 for t in (times[0], times[30])]
        print(f"{name}, {m}x{k}x{n}\t{rates[0]:.0f}\t{rates[1]:.0f}", flush=True)
