"""Writes the goldens of the tensor suite, `tests/backend/goldens/*.txt`.

Needs torch, torchvision, onnx and onnxruntime. A case is a line `case NAME`, then lines `arg NAME VALUE` and
`tensor NAME DTYPE DIMS : ELEMENTS`; what is expected is named `out…`.
"""

import pathlib
import sys

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper

FOLDER = pathlib.Path(__file__).parent.parent / "tests/backend/goldens"
random = np.random.default_rng(7)


def sample(*dims):
    return random.standard_normal(dims).astype(np.float32).round(3)


def line(name, array):
    array = np.asarray(array)
    dtype = {"float32": "f32", "float64": "f32", "int64": "i64", "int32": "i64", "bool": "bool"}[str(array.dtype)]
    dims = ",".join(map(str, array.shape))
    elements = " ".join(str(np.float32(x)) if dtype == "f32" else str(int(x)) for x in array.ravel())
    return f"tensor {name} {dtype} {dims} : {elements}\n"


class File:
    def __init__(self, name):
        self.path, self.text = FOLDER / f"{name}.txt", ""

    def case(self, name, args=(), **tensors):
        self.text += f"case {name}\n"
        for key, value in dict(args).items():
            self.text += f"arg {key} {value}\n"
        for key, value in tensors.items():
            if value is not None:
                self.text += line(key, np.float32(value) if np.asarray(value).dtype == np.float64 else value)

    def write(self):
        self.path.write_text(self.text)


def node_model(op, inputs, outputs, opset, **attributes):
    """A model of one node; absent inputs are None."""
    kinds = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32}
    names = [name if value is not None else "" for name, value in inputs.items()]
    infos = [
        helper.make_tensor_value_info(name, kinds[str(value.dtype)], value.shape)
        for name, value in inputs.items()
        if value is not None
    ]
    outs = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph([helper.make_node(op, names, outputs, **attributes)], "g", infos, outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def feeds(inputs):
    return {name: value for name, value in inputs.items() if value is not None}


def activations():
    file = File("activations")
    x = torch.tensor([-90.0, -20.0, -3.5, -1.0, -0.25, 0.0, 0.25, 1.0, 2.9, 3.5, 20.0, 90.0])
    f = torch.nn.functional
    for name, function in {
        "relu": f.relu,
        "leaky_relu": lambda x: f.leaky_relu(x, 0.1),
        "gelu": f.gelu,
        "gelu_approximate": lambda x: f.gelu(x, approximate="tanh"),
        "sigmoid": f.sigmoid,
        "log_sigmoid": f.logsigmoid,
        "tanh": torch.tanh,
        "silu": f.silu,
        "mish": f.mish,
        "softplus": f.softplus,
        "softplus_2": lambda x: f.softplus(x, 2.0),
        "hard_sigmoid": f.hardsigmoid,
        "hard_swish": f.hardswish,
        "elu": lambda x: f.elu(x, 0.5),
        "relu6": f.relu6,
        "softsign": f.softsign,
    }.items():
        file.case(name, x=x.numpy(), out=function(x.double()).numpy())
    m = torch.from_numpy(sample(2, 4, 3) * 5)
    file.case("softmax", {"dim": 1}, x=m, out=torch.softmax(m, 1))
    file.case("log_softmax", {"dim": 2}, x=m, out=torch.log_softmax(m, 2))
    file.case("softmin", {"dim": 0}, x=m, out=torch.softmax(-m, 0))
    exp = m.double().exp()
    file.case("quiet_softmax", {"dim": 1}, x=m, out=exp / (1 + exp.sum(1, keepdim=True)))
    file.case("glu", {"dim": 1}, x=m, out=f.glu(m, 1))
    file.case("prelu", x=m, alpha=np.float32([0.1, 0.2, 0.3, 0.4]),
              out=f.prelu(m, torch.tensor([0.1, 0.2, 0.3, 0.4])))
    file.write()


def norms():
    file = File("norms")
    f = torch.nn.functional
    x, w, b = torch.from_numpy(sample(2, 3, 4)), torch.from_numpy(sample(4)), torch.from_numpy(sample(4))
    file.case("layer_norm", x=x, w=w, b=b, out=f.layer_norm(x, [4], w, b, 1e-5))
    file.case("rms_norm", x=x, w=w, out=f.rms_norm(x, [4], w, 1e-5))
    y, w, b = torch.from_numpy(sample(2, 4, 3, 2)), torch.from_numpy(sample(4)), torch.from_numpy(sample(4))
    file.case("group_norm", x=y, w=w, b=b, out=f.group_norm(y, 2, w, b, 1e-5))
    file.case("instance_norm", x=y, w=w, b=b, out=f.instance_norm(y, weight=w, bias=b))
    mean, variance = torch.from_numpy(sample(4)), torch.from_numpy(np.abs(sample(4)))
    file.case("batch_norm", x=y, w=w, b=b, mean=mean, variance=variance, out=f.batch_norm(y, mean, variance, w, b))
    weight, bias = torch.from_numpy(sample(5, 4)), torch.from_numpy(sample(5))
    file.case("linear", x=x, w=weight.T.contiguous(), b=bias, out=f.gelu(f.linear(x, weight, bias)))
    pooled = torch.from_numpy(sample(1, 2, 7, 6))
    for size in [(3, 4), (7, 2), (1, 1)]:
        args = {"size": f"{size[0]},{size[1]}"}
        file.case("adaptive_avg_pool", args, x=pooled, out=f.adaptive_avg_pool2d(pooled, size))
    args = {"kernel": "3,2", "stride": "2,1", "padding": "1,0", "dilation": "1,2"}
    unfolded = f.unfold(pooled, (3, 2), dilation=(1, 2), padding=(1, 0), stride=(2, 1))
    file.case("unfold4d", args, x=pooled, out=unfolded)
    shuffled = torch.from_numpy(sample(1, 8, 2, 3))
    file.case("pixel_shuffle", x=shuffled, out=f.pixel_shuffle(shuffled, 2))
    file.write()


def attention():
    file = File("attention")
    sdpa = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (torch.from_numpy(sample(2, 4, n, 3)) for n in (3, 5, 5))
    file.case("plain", q=q, k=k, v=v, out=sdpa(q, k, v))
    mask = torch.from_numpy(random.random((2, 1, 3, 5)) > 0.4)
    mask[..., 0] = True
    file.case("bool_mask", q=q, k=k, v=v, mask=mask, out=sdpa(q, k, v, mask))
    added = torch.from_numpy(sample(3, 5))
    file.case("float_mask", {"scale": 0.3}, q=q, k=k, v=v, mask=added, out=sdpa(q, k, v, added, scale=0.3))
    square = torch.from_numpy(sample(2, 4, 5, 3))
    file.case("causal", {"causal": 1}, q=square, k=k, v=v, out=sdpa(square, k, v, is_causal=True))
    few_k, few_v = k[:, :2], v[:, :2]
    file.case("grouped", q=q, k=few_k, v=few_v, out=sdpa(q, few_k, few_v, enable_gqa=True))
    lower = torch.ones(3, 5, dtype=torch.bool).tril(2)
    file.case("causal_last", {"causal": 1}, q=q, k=k, v=v, out=sdpa(q, k, v, lower))
    scores = 2.0 * torch.tanh(q @ k.transpose(2, 3) / 3**0.5 / 2.0)
    file.case("softcap", {"softcap": 2.0}, q=q, k=k, v=v, out=torch.softmax(scores, 3) @ v)
    file.write()


def interpolate():
    file = File("interpolate")
    x = sample(1, 2, 4, 5)
    transforms = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
    cases = []
    for transform in transforms:
        for scales in [(2.0, 1.6), (0.6, 0.75)]:
            for mode in ["nearest", "linear", "cubic"]:
                cases.append((transform, {"scales": np.float32([1, 1, *scales])}, mode, {}))
    for rounding in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]:
        sizes = {"sizes": np.int64([1, 2, 7, 3])}
        cases.append(("asymmetric", sizes, "nearest", {"nearest_mode": rounding}))
    for mode in ["linear", "cubic"]:
        cases.append(("half_pixel", {"scales": np.float32([1, 1, 0.6, 0.4])}, mode, {"antialias": 1}))
        cases.append(("half_pixel", {"sizes": np.int64([1, 2, 3, 7])}, mode, {"antialias": 1}))
    down = {"scales": np.float32([1, 1, 0.8, 2.0])}
    cases.append(("half_pixel", down, "cubic", {"exclude_outside": 1, "cubic_coeff_a": -0.5}))
    roi = np.float32([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7])
    sizes = {"sizes": np.int64([1, 2, 3, 3])}
    cases.append(("tf_crop_and_resize", sizes, "linear", {"extrapolation_value": 10.0, "roi": roi}))
    for transform, target, mode, extra in cases:
        attributes = {k: v for k, v in extra.items() if k != "roi"}
        inputs = {"x": x, "roi": extra.get("roi"), "scales": target.get("scales"), "sizes": target.get("sizes")}
        model = node_model("Resize", inputs, ["y"], 19, coordinate_transformation_mode=transform, mode=mode, **attributes)
        # Not the reference evaluator: it keeps the fraction of a resized length, where ONNX Runtime (and PyTorch) round it.
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (y,) = session.run(None, feeds(inputs))
        args = {"transform": transform, "mode": mode, **attributes}
        if "scales" in target:
            args["scales"] = ",".join(repr(float(s)) for s in target["scales"])
        if "roi" in extra:
            args["roi"] = ",".join(repr(float(s)) for s in roi)
        file.case(f"{transform}_{mode}", args, x=x, out=y)
    file.write()


def recurrent():
    file = File("recurrent")
    seq, batch, size, hidden = 4, 3, 2, 3
    functions = {"RNN": 1, "GRU": 2, "LSTM": 3}
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}
    variants = [
        ("RNN", "forward", {}, ""),
        ("RNN", "bidirectional", {"activations": ["Relu", "Sigmoid"]}, "bil"),
        ("GRU", "forward", {}, "b"),
        ("GRU", "reverse", {"linear_before_reset": 1}, "bi"),
        ("GRU", "bidirectional", {"linear_before_reset": 1}, "bil"),
        ("GRU", "bidirectional", {"clip": 0.3}, "bil"),
        ("LSTM", "forward", {}, "b"),
        ("LSTM", "reverse", {}, "bil"),
        ("LSTM", "bidirectional", {}, "bilp"),
        ("LSTM", "forward", {"clip": 0.3}, "bi"),
        ("LSTM", "forward", {"input_forget": 1}, "bi"),
    ]
    for op, direction, attributes, parts in variants:
        n = 2 if direction == "bidirectional" else 1
        g = gates[op] * hidden
        inputs = {
            "x": sample(seq, batch, size),
            "w": sample(n, g, size),
            "r": sample(n, g, hidden),
            "b": sample(n, 2 * g) if "b" in parts else None,
            "lengths": np.int32([4, 2, 3]) if "l" in parts else None,
            "h": sample(n, batch, hidden) if "i" in parts else None,
        }
        outputs = ["out", "out_h"]
        if op == "LSTM":
            inputs["c"] = sample(n, batch, hidden) if "i" in parts else None
            inputs["p"] = sample(n, 3 * hidden) if "p" in parts else None
            outputs.append("out_c")
        model = node_model(op, inputs, outputs, 14, hidden_size=hidden, direction=direction, **attributes)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        results = session.run(None, feeds(inputs))
        usual = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}[op]
        args = {"direction": direction, "hidden": hidden, **attributes}
        args["activations"] = ",".join(attributes.get("activations", usual * n))
        assert len(args["activations"].split(",")) == functions[op] * n
        file.case(op, args, **inputs, **dict(zip(outputs, results)))
    file.write()


def suppression():
    file = File("suppression")
    low = random.random((2, 6, 2)).round(2) * 4
    boxes = np.concatenate([low, low + 1 + random.random((2, 6, 2)).round(2)], 2).astype(np.float32)
    scores = random.random((2, 3, 6)).round(3).astype(np.float32)
    for center, threshold in [(0, 0.3), (1, 0.0)]:
        inputs = {"boxes": boxes, "scores": scores, "most": np.int64([4]), "iou": np.float32([0.3]),
                  "least": np.float32([threshold])}
        model = node_model("NonMaxSuppression", inputs, ["y"], 11, center_point_box=center)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (y,) = session.run(None, inputs)
        file.case("nms", {"center": center, "least": threshold}, boxes=boxes, scores=scores, out=y)
    file.write()


def sampling():
    file = File("sampling")
    x = torch.from_numpy(sample(2, 2, 4, 5))
    grid = torch.from_numpy(random.uniform(-1.6, 1.6, (2, 3, 4, 2)).astype(np.float32).round(3))
    for mode in ["nearest", "bilinear", "bicubic"]:
        for padding in ["zeros", "border", "reflection"]:
            for corners in [0, 1]:
                out = torch.nn.functional.grid_sample(x, grid, mode, padding, bool(corners))
                args = {"mode": mode, "padding": padding, "corners": corners}
                file.case("grid_sample", args, x=x, grid=grid, out=out)
    volume, points = torch.from_numpy(sample(1, 2, 3, 4, 2)), torch.from_numpy(sample(1, 2, 2, 3, 3))
    args = {"mode": "bilinear", "padding": "zeros", "corners": 0}
    out = torch.nn.functional.grid_sample(volume, points, align_corners=False)
    file.case("grid_sample_3d", args, x=volume, grid=points, out=out)
    rois = np.float32([[0.5, 0.7, 3.9, 3.1], [1, 0, 9.5, 7], [-3, -2, 2, 2]])
    which = np.int64([0, 1, 1])
    for transform, mode, ratio, scale in [
        ("half_pixel", "avg", 2, 1.0), ("output_half_pixel", "avg", 0, 0.5), ("half_pixel", "max", 2, 0.7),
    ]:
        inputs = {"x": x.numpy(), "rois": rois, "which": which}
        model = node_model("RoiAlign", inputs, ["y"], 16, coordinate_transformation_mode=transform, mode=mode,
                           sampling_ratio=ratio, spatial_scale=scale, output_height=2, output_width=3)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (y,) = session.run(None, inputs)
        args = {"transform": transform, "mode": mode, "ratio": ratio, "scale": scale}
        file.case("roi_align", args, **inputs, out=y)
    from torchvision.ops import deform_conv2d

    image, weight = torch.from_numpy(sample(2, 4, 5, 4)), torch.from_numpy(sample(6, 2, 3, 2))
    offset, mask = torch.from_numpy(sample(2, 2 * 2 * 6, 3, 4)), torch.from_numpy(sample(2, 2 * 6, 3, 4))
    bias = torch.from_numpy(sample(6))
    out = deform_conv2d(image, offset, weight, bias, stride=(2, 1), padding=(1, 1), dilation=(1, 2), mask=mask)
    file.case("deform_conv2d", x=image, offset=offset, w=weight, b=bias, mask=mask, out=out)
    file.write()


def layers():
    file = File("layers")
    nn, f = torch.nn, torch.nn.functional

    def module(name, layer, *inputs, out=None, **more):
        """A layer's parameters under their names, its inputs as in0, in1, …"""
        layer.eval()
        with torch.no_grad():
            for _, parameter in layer.named_parameters():
                parameter.copy_(torch.from_numpy(sample(*parameter.shape)))
            result = layer(*inputs) if out is None else out(layer)
        tensors = {f"in{i}": x for i, x in enumerate(inputs)}
        tensors |= {key: value for key, value in layer.state_dict().items() if "num_batches" not in key}
        results = result if isinstance(result, (tuple, list)) else [result]
        tensors |= {"out" if i == 0 else f"out{i}": x for i, x in enumerate(results)}
        file.case(name, **tensors, **more)

    x1, x2 = (torch.from_numpy(sample(2, 4, *size)) for size in [(9,), (7, 6)])
    module("conv1d", nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), x1)
    module("conv2d_same", nn.Conv2d(4, 3, (3, 4), padding="same", dilation=(1, 2)), x2)
    weight = torch.from_numpy(sample(3, 4, 2, 3))
    file.case("conv2d_asymmetric", in0=x2, weight=weight, out=f.relu(f.conv2d(f.pad(x2, (2, 1, 0, 1)), weight)))
    layer = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
    module("conv_transpose2d", layer, x2)
    batch = nn.BatchNorm2d(4)
    batch.running_mean.copy_(torch.from_numpy(sample(4)))
    batch.running_var.copy_(torch.from_numpy(np.abs(sample(4))))
    module("batch_norm", batch, x2)
    rows = torch.from_numpy(sample(2, 5, 4))
    lstm = nn.LSTM(4, 3, batch_first=True)
    module("lstm", lstm, rows, out=lambda l: (l(rows)[0], *[t[0] for t in l(rows)[1]]))
    module("bi_lstm", nn.LSTM(4, 3, batch_first=True, bidirectional=True), rows,
           out=lambda l: (l(rows)[0], *l(rows)[1]))
    module("gru", nn.GRU(4, 3, batch_first=True), rows, out=lambda l: l(rows)[0])
    pad = torch.tensor([[False] * 5, [False, False, False, True, True]])
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    module("attention", attention, rows, out=lambda l: l(rows, rows, rows, key_padding_mask=pad)[0], pad=pad)
    encoder = nn.TransformerEncoderLayer(4, 2, 8, activation="gelu", batch_first=True)
    module("encoder", encoder, rows)
    memory = torch.from_numpy(sample(2, 3, 4))
    decoder = nn.TransformerDecoderLayer(4, 2, 8, activation="gelu", batch_first=True, norm_first=True)
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    module("decoder", decoder, rows, memory, out=lambda l: l(rows, memory, tgt_mask=causal))

    logits, classes = torch.from_numpy(sample(4, 3)), torch.tensor([2, 0, 1, 2])
    weights = torch.tensor([0.5, 1.0, 2.0])
    file.case("cross_entropy", in0=logits, in1=classes, out=f.cross_entropy(logits, classes)[None])
    file.case("cross_entropy_weighted", in0=logits, in1=classes,
              out=f.cross_entropy(logits, classes, weights)[None])
    smoothed = f.cross_entropy(logits, classes, label_smoothing=0.1)
    file.case("cross_entropy_smoothed", in0=logits, in1=classes, out=smoothed[None])
    ignored = f.cross_entropy(logits, classes, ignore_index=1)
    file.case("cross_entropy_padded", in0=logits, in1=classes, out=ignored[None])
    binary = torch.tensor([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 1, 0]])
    loss = f.binary_cross_entropy_with_logits(logits, binary.float())
    file.case("binary_cross_entropy", in0=logits, in1=binary, out=loss[None])
    target = torch.from_numpy(sample(4, 3))
    file.case("mse", in0=logits, in1=target, out=f.mse_loss(logits, target)[None])
    file.case("huber", in0=logits, in1=target, out=f.huber_loss(logits, target, delta=0.5)[None])
    counts = target.abs() + 0.5
    file.case("poisson", in0=logits, in1=counts, out=f.poisson_nll_loss(logits, counts)[None])
    signs = torch.tensor([1, -1, 1, -1])
    loss = f.cosine_embedding_loss(logits, target, signs, margin=0.2)
    file.case("cosine_embedding", in0=logits, in1=target, in2=signs, out=loss[None])

    file.case("max_pool2d", in0=x2, out=f.max_pool2d(x2, 3, 2, 1, ceil_mode=True))
    file.case("avg_pool2d", in0=x2, out=f.avg_pool2d(x2, (2, 3), 1, (1, 1), count_include_pad=False))
    file.case("adaptive_avg_pool1d", in0=x1, out=f.adaptive_avg_pool1d(x1, 4))
    file.case("interpolate_linear", in0=x2,
              out=f.interpolate(x2, (10, 4), mode="bilinear", align_corners=True))
    file.case("interpolate_cubic", in0=x2, out=f.interpolate(x2, (10, 4), mode="bicubic", align_corners=True))
    file.case("interpolate_nearest", in0=x1, out=f.interpolate(x1, scale_factor=1.5))

    first = torch.from_numpy(sample(2, 5, 3))
    module("bi_gru", nn.GRU(4, 3, bidirectional=True), rows, first, out=lambda l: l(rows, first))
    module("rnn", nn.RNN(4, 3, batch_first=True), rows, first[0, :2], out=lambda l: l(rows, first[:1, :2].contiguous()))
    module("bi_rnn", nn.RNN(4, 3, batch_first=True, bidirectional=True, nonlinearity="relu"), rows,
           out=lambda l: l(rows))
    sizes = nn.MultiheadAttention(4, 2, kdim=3, vdim=2, batch_first=True)
    key, value = (torch.from_numpy(sample(2, 6, n)) for n in (3, 2))
    module("attention_sizes", sizes, rows, key, value, out=lambda l: l(rows, key, value)[0])
    module("attention_unbiased", nn.MultiheadAttention(4, 2, bias=False, batch_first=True), rows,
           out=lambda l: l(rows, rows, rows)[0])
    file.write()


def sequences():
    """Layers of sequences: grouped attention to a context, rotations by position, gates; a decoder of two layers."""
    global random
    random = np.random.default_rng(23)
    file, nn, f = File("sequences"), torch.nn, torch.nn.functional
    tensor = lambda *dims: torch.from_numpy(sample(*dims))

    query, context = tensor(2, 3, 6), tensor(2, 5, 7)
    hidden = torch.tensor([[False] * 5, [False, True, False, True, True]])
    sizes = {"query": (6, 8), "key": (7, 4), "value": (7, 4), "output": (8, 6)}
    linear = {name: (tensor(size[1], size[0]), tensor(size[1])) for name, size in sizes.items()}
    heads = lambda x, name, n: f.linear(x, *linear[name]).unflatten(-1, (n, 2)).transpose(1, 2)
    out = f.scaled_dot_product_attention(heads(query, "query", 4), heads(context, "key", 2), heads(context, "value", 2),
                                         attn_mask=~hidden[:, None, None], enable_gqa=True)
    out = f.linear(out.transpose(1, 2).flatten(2), *linear["output"])
    weights = {f"{name}.{kind}": x for name, pair in linear.items() for kind, x in zip(("weight", "bias"), pair)}
    file.case("cross_attention", in0=query, in1=context, mask=hidden, out=out, **weights)

    rows = tensor(2, 5, 6)
    def rotated(start, scale):
        angles = torch.arange(start, start + 5).double()[:, None] * scale * 10000.0 ** -(torch.arange(0, 6, 2).double() / 6)
        pairs = torch.view_as_complex(rows.double().unflatten(-1, (3, 2)).contiguous())
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(2)
    file.case("rotary", in0=rows, out=rotated(0, 1.0), out1=rotated(4, 1.0), out2=rotated(9, 0.25))
    file.case("glu", in0=rows, out=f.glu(rows, 2))

    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8, activation="gelu", batch_first=True), 2).eval()
    with torch.no_grad():
        for _, parameter in decoder.named_parameters():
            parameter.copy_(tensor(*parameter.shape))
        memory, causal = tensor(2, 4, 6), torch.ones(5, 5, dtype=torch.bool).triu(1)
        file.case("decoder", in0=rows, in1=memory, out=decoder(rows, memory, tgt_mask=causal), **decoder.state_dict())
    file.write()


def gradients():
    """Gradients of every operand `…` as `d…`, from the gradient `g` of the result `out`."""
    global random
    random = np.random.default_rng(11)
    file, f, nn = File("gradients"), torch.nn.functional, torch.nn

    def case(name, function, args=(), **operands):
        tensors = {key: torch.from_numpy(np.asarray(value)) for key, value in operands.items()}
        leaves = {key: t.double().requires_grad_() for key, t in tensors.items() if t.is_floating_point()}
        out = function(*{**tensors, **leaves}.values())
        g = sample(*out.shape)
        out.backward(torch.from_numpy(g).double())
        found = {f"d{key}": leaf.grad.numpy() for key, leaf in leaves.items()}
        file.case(name, args, **operands, g=g, out=out.detach().numpy(), **found)

    # With the corners of all.
    x = np.float32([-20, -4, -3, -1.5, -1, -0.5, -0.25, 0, 0.25, 0.5, 1, 1.5, 2.9, 3, 4, 6, 7, 20])
    for name, function in {
        "relu": f.relu,
        "leaky_relu": lambda x: f.leaky_relu(x, 0.1),
        "gelu": f.gelu,
        "gelu_approximate": lambda x: f.gelu(x, approximate="tanh"),
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "silu": f.silu,
        "mish": f.mish,
        "softplus": f.softplus,
        "hard_sigmoid": f.hardsigmoid,
        "hard_swish": f.hardswish,
        "elu": lambda x: f.elu(x, 0.5),
        "clamp": lambda x: torch.clamp(x, -0.5, 3.0),
    }.items():
        case(name, function, x=x)

    for stride, padding, dilation, groups in [(1, 0, 1, 1), (2, 1, 1, 2), (1, 2, 2, 4), (3, 1, 1, 1)]:
        args = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        case("conv", lambda x, w: f.conv2d(x, w, None, stride, padding, dilation, groups), args,
             x=sample(2, 4, 6, 7), w=sample(4, 4 // groups, 3, 2))
        extra = 1 if stride > 1 else 0
        case("conv_transpose", lambda x, w: f.conv_transpose2d(x, w, None, stride, padding, extra, groups, dilation),
             {**args, "extra": extra}, x=sample(2, 4, 3, 4), w=sample(4, 4 // groups, 3, 2))

    for ceil in [0, 1]:
        case("max_pool", lambda x: f.max_pool2d(x, 3, 2, 1, 1, bool(ceil)), {"ceil": ceil}, x=sample(2, 2, 5, 6))
        for count in [0, 1]:
            case("avg_pool", lambda x: f.avg_pool2d(x, 3, 2, 1, bool(ceil), bool(count)), {"ceil": ceil, "count": count},
                 x=sample(2, 2, 5, 6))
    case("adaptive_avg_pool", lambda x: f.adaptive_avg_pool2d(x, (3, 4)), x=sample(1, 2, 5, 6))

    for mode in ["nearest", "bilinear", "bicubic"]:
        align = {} if mode == "nearest" else {"align_corners": False}
        case("interpolate", lambda x: f.interpolate(x, (6, 4), mode=mode, **align), {"mode": mode}, x=sample(1, 2, 4, 5))

    case("softmax", lambda x: torch.softmax(x, 1), x=sample(2, 4, 3))
    case("log_softmax", lambda x: torch.log_softmax(x, 1), x=sample(2, 4, 3))
    case("layer_norm", lambda x, w, b: f.layer_norm(x, (4,), w, b, 1e-5), x=sample(2, 3, 4), w=sample(4), b=sample(4))
    case("rms_norm", lambda x, w: f.rms_norm(x, (4,), w, 1e-5), x=sample(2, 3, 4), w=sample(4))
    case("group_norm", lambda x, w, b: f.group_norm(x, 2, w, b, 1e-5), x=sample(2, 4, 3, 2), w=sample(4), b=sample(4))
    case("batch_norm", lambda x, w, b: f.batch_norm(x, None, None, w, b, True, 0.1, 1e-5),
         x=sample(3, 2, 2, 3), w=sample(2), b=sample(2))
    case("embedding", lambda x, w: f.embedding(x, w), x=np.int64([[1, 0], [2, 1]]), w=sample(4, 3))

    q, k, v = (sample(2, 2, n, 3) for n in (4, 5, 5))
    case("attention", lambda q, k, v: f.scaled_dot_product_attention(q, k, v), q=q, k=k, v=v)
    case("attention", lambda q, k, v, mask: f.scaled_dot_product_attention(q, k, v, mask), q=q, k=k, v=v, mask=sample(4, 5))
    keep = np.arange(20).reshape(4, 5) % 3 != 1
    case("attention", lambda q, k, v, keep: f.scaled_dot_product_attention(q, k, v, keep), q=q, k=k, v=v, keep=keep)
    k, v = sample(2, 1, 4, 3), sample(2, 1, 4, 3)
    case("attention", lambda q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
         {"causal": 1}, q=q, k=k, v=v)

    # Rows of more classes than a vector has elements; -1 and 50, which is no class, do not count.
    for weighted in [False, True]:
        for smoothing in [0.0, 0.25]:
            w = sample(37).__abs__() + np.float32(0.5) if weighted else None
            args = {"smoothing": smoothing} | ({"weights": ",".join(map(str, w))} if weighted else {})
            t = np.int64([3, -1, 0, 36, 3, 50, 20])

            def losses(x, t):
                kept = torch.where((t == -1) | (t == 50), -100, t)
                weight = torch.from_numpy(w).double() if weighted else None
                return f.cross_entropy(x, kept, weight, reduction="none", label_smoothing=smoothing)

            case("cross_entropy", losses, args, x=sample(7, 37) * 3, t=t)

    # Behind all others: one sequence of random numbers makes them.
    for shape, per_group, kernel, stride, padding, dilation, groups, extra in [
        ((1, 6, 5, 3), 1, (3, 3), 2, 1, 1, 6, 1), ((2, 3, 4, 5), 5, (2, 3), 1, 1, 2, 1, 1), ((1, 4, 3, 4), 3, (4, 4), 2, 1, 1, 2, 0),
    ]:
        args = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "extra": extra}
        case("conv_transpose", lambda x, w: f.conv_transpose2d(x, w, None, stride, padding, extra, groups, dilation), args,
             x=sample(*shape), w=sample(shape[1], per_group, *kernel))
    for p in [1, 2, 3]:
        # PyTorch's powers have signs.
        case("lp_pool", lambda x: f.lp_pool2d(x.abs(), p, (3, 2), 2), {"p": p}, x=sample(2, 3, 6, 5))
    case("dilated_max_pool", lambda x: f.max_pool2d(x, 3, 2, 1, 2, True), x=sample(1, 3, 7, 8))
    for size in [(1, 1), (7, 2), (2, 9)]:
        case("adaptive_avg_pool", lambda x: f.adaptive_avg_pool2d(x, size), x=sample(2, 3, 5, 6))
    for mode in ["nearest", "bilinear", "bicubic"]:
        align = {} if mode == "nearest" else {"align_corners": False}
        for size in [(3, 11), (9, 2)]:
            case("interpolate", lambda x: f.interpolate(x, size, mode=mode, **align), {"mode": mode}, x=sample(1, 2, 5, 7))
    case("instance_norm", lambda x, w, b: f.instance_norm(x, weight=w, bias=b, eps=1e-5), x=sample(2, 3, 5, 3), w=sample(3), b=sample(3))
    case("group_norm", lambda x, w, b: f.group_norm(x, 2, w, b, 1e-5), x=sample(1, 6, 7), w=sample(6), b=sample(6))
    file.write()


# Where PyTorch's gates `ifgo` and `rzn` stand in ONNX's `iofc` and `zrh`.
GATES = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2], "RNN": [0]}
USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def directions_of(direction):
    """Whether each direction reads backwards."""
    return {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]


def recurrent_module(op, direction, activations, x, w, r, b, h=None, c=None, lengths=None):
    """PyTorch's own layer, with operands and results as ONNX has them."""
    order, hidden, size = GATES[op], r.shape[2], x.shape[2]
    options = {"nonlinearity": activations[0].lower()} if op == "RNN" else {}
    backwards = directions_of(direction)
    layer = getattr(torch.nn, op)(size, hidden, bidirectional=len(backwards) == 2, **options).double()
    parts = lambda t: t.reshape(len(order), hidden, *t.shape[1:])[order].reshape(t.shape)
    own = {}
    for d, suffix in enumerate(["l0", "l0_reverse"][: len(backwards)]):
        own[f"weight_ih_{suffix}"], own[f"weight_hh_{suffix}"] = parts(w[d]), parts(r[d])
        own[f"bias_ih_{suffix}"], own[f"bias_hh_{suffix}"] = map(parts, b[d].chunk(2))
    packed = x
    if lengths is not None:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False)
    first = () if h is None else (h,) if c is None else ((h, c),)
    out, last = torch.func.functional_call(layer, own, (packed, *first))
    if lengths is not None:
        out, _ = torch.nn.utils.rnn.pad_packed_sequence(out, total_length=x.shape[0])
    out = out.reshape(*out.shape[:2], len(backwards), hidden).permute(0, 2, 1, 3)
    return (out, *(last if op == "LSTM" else [last]))


def recurrent_equations(op, direction, activations, x, w, r, b, h=None, c=None, p=None, lengths=None, clip=None,
                        linear_before_reset=0, input_forget=0):
    """ONNX's equations, written out for PyTorch to differentiate."""
    functions = {"Relu": torch.relu, "Tanh": torch.tanh, "Sigmoid": torch.sigmoid,
                 "Softsign": torch.nn.functional.softsign, "Softplus": torch.nn.functional.softplus}
    (steps, batch, _), hidden = x.shape, r.shape[2]
    bounded = lambda t: t if clip is None else torch.clamp(t, -clip, clip)
    outputs, hiddens, cells = [], [], []
    for d, backwards in enumerate(directions_of(direction)):
        count = len(USUAL[op])
        used = [functions[name] for name in activations[count * d : count * (d + 1)]]
        f, g = used[0], used[min(1, count - 1)]
        state = torch.zeros(batch, hidden, dtype=x.dtype) if h is None else h[d]
        cell = torch.zeros_like(state) if c is None else c[d]
        w_bias, r_bias = b[d].chunk(2)
        peep = [torch.zeros(hidden, dtype=x.dtype)] * 3 if p is None else p[d].chunk(3)
        found = [None] * steps
        for t in reversed(range(steps)) if backwards else range(steps):
            x_sums = (x[t] @ w[d].T + w_bias).split(hidden, 1)
            h_sums = (state @ r[d].T + r_bias).split(hidden, 1)
            sums, new_cell = [a + b for a, b in zip(x_sums, h_sums)], cell
            if op == "RNN":
                new = f(bounded(sums[0]))
            elif op == "GRU":
                z, reset = (f(bounded(t)) for t in sums[:2])
                from_hidden = reset * h_sums[2]
                if not linear_before_reset:
                    from_hidden = (reset * state) @ r[d][2 * hidden :].T + r_bias[2 * hidden :]
                new = (1 - z) * g(bounded(x_sums[2] + from_hidden)) + z * state
            else:
                i = f(bounded(sums[0] + peep[0] * cell))
                forget = 1 - i if input_forget else f(bounded(sums[2] + peep[2] * cell))
                new_cell = forget * cell + i * g(bounded(sums[3]))
                new = f(bounded(sums[1] + peep[1] * new_cell)) * used[2](new_cell)
            running = torch.ones(batch, 1, dtype=torch.bool) if lengths is None else (lengths > t)[:, None]
            found[t] = torch.where(running, new, 0.0)
            state, cell = torch.where(running, new, state), torch.where(running, new_cell, cell)
        outputs.append(torch.stack(found))
        hiddens.append(state)
        cells.append(cell)
    results = torch.stack(outputs, 1), torch.stack(hiddens), torch.stack(cells)
    return results if op == "LSTM" else results[:2]


def recurrent_gradients():
    """Gradients of a recurrent layer's operands `…` as `d…`, from those of its results (`out`, `out_h`, `out_c`): `g`, `g_h`, `g_c`."""
    global random
    random = np.random.default_rng(13)
    file = File("recurrent_gradients")
    steps, batch, size, hidden = 4, 3, 3, 2
    variants = [("module", op, direction, parts, {}) for op in GATES for direction, parts in
                [("forward", "bi"), ("bidirectional", "b"), ("bidirectional", "bil")]]
    variants += [
        ("module", "RNN", "forward", "b", {"activations": ["Relu"]}),
        ("equations", "RNN", "reverse", "bil", {"clip": 0.5}),
        ("equations", "RNN", "bidirectional", "bil", {"activations": ["Softsign", "Sigmoid"]}),
        ("equations", "GRU", "reverse", "bil", {"linear_before_reset": 1, "clip": 0.5}),
        ("equations", "GRU", "bidirectional", "bil", {"linear_before_reset": 1, "activations": ["Sigmoid", "Softplus", "Sigmoid", "Relu"]}),
        ("equations", "GRU", "forward", "b", {}),
        ("equations", "GRU", "reverse", "bi", {"clip": 0.5}),
        ("equations", "GRU", "bidirectional", "bil", {}),
        ("equations", "LSTM", "reverse", "bil", {}),
        ("equations", "LSTM", "bidirectional", "bilp", {}),
        ("equations", "LSTM", "forward", "bip", {"clip": 0.5}),
        ("equations", "LSTM", "reverse", "bil", {"input_forget": 1}),
        ("equations", "LSTM", "forward", "bi", {"activations": ["Sigmoid", "Softsign", "Softplus"]}),
    ]
    for way, op, direction, parts, attributes in variants:
        n = len(directions_of(direction))
        rows = len(GATES[op]) * hidden
        inputs = {
            "x": sample(steps, batch, size),
            "w": sample(n, rows, size),
            "r": sample(n, rows, hidden),
            "b": sample(n, 2 * rows),
            "lengths": np.int32([4, 1, 3]) if "l" in parts else None,
            "h": sample(n, batch, hidden) if "i" in parts else None,
        }
        outputs = ["out", "out_h"]
        if op == "LSTM":
            inputs["c"] = sample(n, batch, hidden) if "i" in parts else None
            inputs["p"] = sample(n, 3 * hidden) if "p" in parts else None
            outputs.append("out_c")
        activations = attributes.get("activations", USUAL[op] * n)
        given = {name: torch.from_numpy(value) for name, value in inputs.items() if value is not None}
        leaves = {name: t.double().requires_grad_() for name, t in given.items() if t.is_floating_point()}
        operands = {**given, **leaves}
        if way == "module":
            results = recurrent_module(op, direction, activations, **operands)
            attributes = {**attributes, **({"linear_before_reset": 1} if op == "GRU" else {})}
        else:
            rest = {key: value for key, value in attributes.items() if key != "activations"}
            results = recurrent_equations(op, direction, activations, **operands, **rest)
        # The operands mean what ONNX says.
        model = node_model(op, inputs, outputs, 14, hidden_size=hidden, direction=direction,
                           **{**attributes, "activations": activations})
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for ours, theirs in zip(results, session.run(None, feeds(inputs))):
            np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=1e-4, atol=1e-5)
        upstream = [sample(*result.shape) for result in results]
        torch.autograd.backward(results, [torch.from_numpy(g).double() for g in upstream])
        args = {"direction": direction, "hidden": hidden, **attributes, "activations": ",".join(activations)}
        file.case(op, args, **inputs, **dict(zip(["g", "g_h", "g_c"], upstream)),
                  **{name: result.detach().numpy() for name, result in zip(outputs, results)},
                  **{f"d{name}": leaf.grad.numpy() for name, leaf in leaves.items()})
    file.write()


FOLDER.mkdir(exist_ok=True)
torch.manual_seed(0)
for make in [activations, norms, attention, interpolate, recurrent, suppression, sampling, layers, sequences, gradients,
             recurrent_gradients]:
    # Only what is named, if anything is; the files but those of gradients share one sequence of random numbers.
    if not sys.argv[1:] or make.__name__ in sys.argv[1:]:
        make()
