"""PyTorch modules to ONNX, in the dialect of each exporter."""

from __future__ import annotations

import io
import logging
import warnings

import onnx
import torch

warnings.filterwarnings("ignore")
logging.getLogger("torch.onnx").setLevel(logging.ERROR)

# Python stack traces: file names of the exporting machine, and half of a small model's bytes.
UNWANTED_METADATA = {"pkg.torch.onnx.stack_trace"}


def seed_weights(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Give every parameter and buffer a reproducible value that keeps activations in range."""
    gen = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in module.named_parameters():
            p = torch.view_as_real(p) if p.is_complex() else p
            if p.dim() >= 2:
                p.copy_(torch.randn(p.shape, generator=gen) * (1.6 / p[0].numel()) ** 0.5)
            elif "bias" in name:
                p.copy_(torch.randn(p.shape, generator=gen) * 0.02)
            else:
                p.copy_(1.0 + torch.randn(p.shape, generator=gen) * 0.05)
        for name, b in module.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(torch.randn(b.shape, generator=gen) * 0.05)
            elif name.endswith("running_var"):
                b.copy_(1.0 + torch.rand(b.shape, generator=gen) * 0.2)
    return module.eval()


def drop_metadata(model: onnx.ModelProto) -> onnx.ModelProto:
    def visit(nodes):
        for node in nodes:
            kept = [p for p in node.metadata_props if p.key not in UNWANTED_METADATA]
            del node.metadata_props[:]
            node.metadata_props.extend(kept)
            for attribute in node.attribute:
                for graph in [attribute.g, *attribute.graphs]:
                    visit(graph.node)

    visit(model.graph.node)
    for function in model.functions:
        visit(function.node)
    return model


def export_dynamo(module, args, *, opset=18, optimize=True, **kw) -> onnx.ModelProto:
    """The exporter of today, which works from `torch.export` and records scopes in the nodes' metadata."""
    with torch.no_grad():
        program = torch.onnx.export(
            module, args, dynamo=True, opset_version=opset, optimize=optimize, verbose=False, **kw
        )
    return drop_metadata(program.model_proto)


def export_torchscript(module, args, *, opset=17, **kw) -> onnx.ModelProto:
    """The exporter before it, which works from a trace and puts scopes into the nodes' names."""
    buffer = io.BytesIO()
    with torch.no_grad():
        torch.onnx.export(module, args, buffer, dynamo=False, opset_version=opset, **kw)
    return onnx.load_from_string(buffer.getvalue())
