"""Time one peer on one case and print a line of JSON: what `bench.py` runs, in a process of its own a case.

    python scripts/bench_peer.py {onnxruntime,openvino} CASE_DIR THREADS {f32,bf16}
"""
from __future__ import annotations

import json
import pathlib
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper

SECONDS, LEAST_RUNS, MOST_RUNS, WARM_UP = 2.0, 5, 10000, 3


def inputs(case: pathlib.Path) -> list[np.ndarray]:
    """The first golden inputs, in the order of their numbers."""
    found = []
    while (path := case / "test_data_set_0" / f"input_{len(found)}.pb").exists():
        tensor = onnx.TensorProto()
        tensor.ParseFromString(path.read_bytes())
        found.append(numpy_helper.to_array(tensor))
    return found


def onnxruntime(case: pathlib.Path, threads: int, precision: str) -> Callable[[list[np.ndarray]], object]:
    """In f32 whatever the precision: it has no kernels of bf16 for these models."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = ort.InferenceSession(str(case / "model.onnx"), options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_inputs()]
    return lambda values: session.run(None, dict(zip(names, values)))


def openvino(case: pathlib.Path, threads: int, precision: str) -> Callable[[list[np.ndarray]], object]:
    """One stream at its lowest latency. Without a hint it computes in bf16 where the CPU has AMX."""
    import openvino as ov

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": precision,
    }
    request = ov.Core().compile_model(str(case / "model.onnx"), "CPU", settings).create_infer_request()
    return lambda values: request.infer(dict(enumerate(values)))


PEERS = {"onnxruntime": onnxruntime, "openvino": openvino}


def main() -> None:
    peer, case, threads, precision = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    values = inputs(case)
    started = time.perf_counter()
    run = PEERS[peer](case, threads, precision)
    load = time.perf_counter() - started
    for _ in range(WARM_UP):
        run(values)
    times, begun = [], time.perf_counter()
    while len(times) < LEAST_RUNS or (time.perf_counter() - begun < SECONDS and len(times) < MOST_RUNS):
        started = time.perf_counter()
        run(values)
        times.append(time.perf_counter() - started)
    times.sort()
    print(json.dumps({
        "median_ms": times[len(times) // 2] * 1e3,
        "min_ms": times[0] * 1e3,
        "load_ms": load * 1e3,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }))


if __name__ == "__main__":
    main()
