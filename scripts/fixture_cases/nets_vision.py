"""Convolutional architectures, shrunk: residual, mobile, U-Net, 1-D and 3-D, a vision transformer, a detection head."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from fixture_lib.export import export_dynamo, seed_weights
from fixture_lib.graph import F32, I64, Graph
from fixture_lib.registry import Case, case
from fixture_lib.torch_case import torch_case

BATCH = torch.export.Dim("batch", min=1, max=64)


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(x)) + shortcut)


class ResidualCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 8))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(16, 10)

    def forward(self, image):
        x = self.maxpool(F.relu(self.bn1(self.conv1(image))))
        return self.fc(self.avgpool(self.layer2(self.layer1(x))).flatten(1))


def images(*shape, seed=7):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@case("net_residual_cnn")
def residual_cnn(_):
    return torch_case(
        ResidualCnn(), [(images(2, 3, 32, 32),), (images(1, 3, 32, 32, seed=8),)], dynamic_shapes={"image": {0: BATCH}}
    )


@case("net_residual_cnn_unfolded")
def residual_cnn_unfolded(_):
    return torch_case(ResidualCnn(), [(images(2, 3, 32, 32),)], optimize=False)


class SqueezeExcite(nn.Module):
    def __init__(self, channels, squeezed):
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x):
        return x * F.hardsigmoid(self.fc2(F.relu(self.fc1(F.adaptive_avg_pool2d(x, 1)))))


class InvertedResidual(nn.Module):
    def __init__(self, channels, expanded, kernel):
        super().__init__()
        self.expand = nn.Sequential(
            nn.Conv2d(channels, expanded, 1, bias=False), nn.BatchNorm2d(expanded), nn.Hardswish()
        )
        self.depthwise = nn.Sequential(
            nn.Conv2d(expanded, expanded, kernel, 1, kernel // 2, groups=expanded, bias=False),
            nn.BatchNorm2d(expanded),
            nn.Hardswish(),
        )
        self.excite = SqueezeExcite(expanded, 8)
        self.project = nn.Sequential(nn.Conv2d(expanded, channels, 1, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        return x + self.project(self.excite(self.depthwise(self.expand(x))))


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish())
        self.blocks = nn.Sequential(InvertedResidual(8, 24, 3), InvertedResidual(8, 24, 5), InvertedResidual(8, 24, 5))
        self.head = nn.Sequential(nn.Conv2d(8, 32, 1), nn.ReLU6())
        self.classifier = nn.Sequential(nn.Linear(32, 24), nn.SiLU(), nn.Dropout(0.2), nn.Linear(24, 10))

    def forward(self, image):
        x = self.head(self.blocks(self.stem(image)))
        return F.log_softmax(self.classifier(x.mean((2, 3))), 1)


@case("net_mobile_cnn")
def mobile_cnn(_):
    return torch_case(
        MobileNet(), [(images(1, 3, 32, 24),), (images(3, 3, 32, 24),)], dynamic_shapes={"image": {0: BATCH}}, example=1
    )


class UNet(nn.Module):
    def __init__(self, c=6):
        super().__init__()

        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())

        self.d1, self.d2, self.d3 = block(3, c), block(c, 2 * c), block(2 * c, 4 * c)
        self.u2, self.u1 = (
            nn.ConvTranspose2d(4 * c, 2 * c, 2, 2),
            nn.ConvTranspose2d(2 * c, c, 3, 2, 1, output_padding=1),
        )
        self.e2, self.e1, self.out = block(4 * c, 2 * c), block(2 * c, c), nn.Conv2d(c, 2, 1)

    def forward(self, image):
        a = self.d1(image)
        b = self.d2(F.max_pool2d(a, 2))
        y = self.d3(F.avg_pool2d(b, 2))
        y = self.e2(torch.cat([self.u2(y), b], 1))
        y = self.out(self.e1(torch.cat([self.u1(y), a], 1)))
        return y, F.interpolate(torch.sigmoid(y), scale_factor=0.5, mode="bilinear", align_corners=False)


@case("net_unet")
def unet(_):
    return torch_case(UNet(), [(images(1, 3, 16, 24),)])


class DenseNet(nn.Module):
    """Concatenations that grow, as in DenseNet and SqueezeNet, with pools of every form."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, 2)
        self.grow = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(6 + 4 * i), nn.ReLU(), nn.Conv2d(6 + 4 * i, 4, 3, padding=1)) for i in range(3)
        )
        self.pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self.fc = nn.Linear(18, 5)

    def forward(self, image):
        x = self.pool(F.prelu(self.stem(image), torch.tensor([0.25])))
        for layer in self.grow:
            x = torch.cat([x, layer(x)], 1)
        return self.fc(F.adaptive_max_pool2d(x, 1).flatten(1)).softmax(-1)


@case("net_dense_cnn")
def dense_cnn(_):
    return torch_case(DenseNet(), [(images(2, 3, 21, 21),)])


class AudioNet(nn.Module):
    """One dimension: strided, dilated and causal convolutions, GLU, a transposed convolution."""

    def __init__(self):
        super().__init__()
        self.front = nn.Conv1d(1, 16, 8, 4, 2)
        self.dilated = nn.ModuleList(nn.Conv1d(8, 16, 3, padding=d, dilation=d) for d in (1, 2, 4))
        self.norm = nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose1d(8, 1, 8, 4, 2)

    def forward(self, wave):
        x = F.glu(self.front(wave), 1)
        for conv in self.dilated:
            x = x + F.glu(conv(self.norm(x)), 1)
        return torch.tanh(self.up(x)), F.avg_pool1d(x, 4, 2, 1)


@case("net_audio_cnn")
def audio_cnn(_):
    length = 4 * torch.export.Dim("frames", min=4, max=1024)
    return torch_case(
        AudioNet(), [(images(2, 1, 128),), (images(1, 1, 64),)], dynamic_shapes={"wave": {0: BATCH, 2: length}}
    )


class VideoNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv3d(3, 8, (3, 5, 5), (1, 2, 2), (1, 2, 2))
        self.norm = nn.InstanceNorm3d(8, affine=True)
        self.conv2 = nn.Conv3d(8, 8, 3, padding=1, groups=4)
        self.fc = nn.Linear(8, 4)

    def forward(self, clip):
        x = F.max_pool3d(F.leaky_relu(self.norm(self.conv1(clip)), 0.1), 2)
        x = F.avg_pool3d(F.elu(self.conv2(x)), (1, 2, 2))
        return self.fc(x.mean((2, 3, 4)))


@case("net_video_cnn")
def video_cnn(_):
    return torch_case(VideoNet(), [(images(1, 3, 4, 16, 16),)])


class VitBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, dim=32, depth=2):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, 8, 8)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 17, dim))
        self.blocks = nn.Sequential(*[VitBlock(dim, 4) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 10)

    def forward(self, image):
        x = self.patch_embed(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


@case("net_vit")
def vit(_):
    return torch_case(
        VisionTransformer(), [(images(2, 3, 32, 32),), (images(1, 3, 32, 32),)], dynamic_shapes={"image": {0: BATCH}}
    )


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU())
        self.scores, self.boxes = nn.Conv2d(8, 3, 1), nn.Conv2d(8, 4, 1)

    def forward(self, image):
        x = self.features(image)
        return self.scores(x).flatten(2).sigmoid(), self.boxes(x).flatten(2).transpose(1, 2)


@case("net_detector")
def detector(rng):
    """A backbone as PyTorch exports it, then anchors, non-maximum suppression, and a gather of what is left."""
    backbone = export_dynamo(
        seed_weights(Backbone()), (images(1, 3, 32, 32),), input_names=["image"], output_names=["scores", "offsets"]
    )
    g = Graph("detector")
    g.nodes, g.initializers, g.inputs = (
        list(backbone.graph.node),
        list(backbone.graph.initializer),
        list(backbone.graph.input),
    )
    y, x = np.meshgrid(np.arange(8), np.arange(8), indexing="ij")
    centres = np.stack([x, y], -1).reshape(1, 64, 2).astype(np.float32) * 4 + 2
    centre, size = g.op("Split", "offsets", [2, 2], out=2, axis=-1)
    centre = g.op("Add", g.op("Mul", g.op("Tanh", centre), np.float32(4)), centres)
    half = g.op("Mul", g.op("Exp", size), np.float32(4))
    boxes = g.op("Concat", g.op("Sub", centre, half), g.op("Add", centre, half), axis=-1)
    selected = g.op(
        "NonMaxSuppression",
        boxes,
        "scores",
        np.array([5], np.int64),
        np.array([0.3], np.float32),
        np.array([0.6], np.float32),
    )
    box_index = g.op("Gather", selected, np.int64(2), axis=1)
    g.show("boxes", "Gather", g.op("Squeeze", boxes, [0]), box_index, axis=0, dtype=F32, dims=["found", 4])
    g.show("classes", "Gather", selected, np.int64(1), axis=1, dtype=I64, dims=["found"])
    g.show("confidence", "GatherND", "scores", selected, dtype=F32, dims=["found"])
    g.show("count", "Shape", selected, end=1, dtype=I64, dims=[1])
    # In the second image, nearly blank, nothing is found.
    blank = images(1, 3, 32, 32).numpy() * np.float32(0.05)
    return Case(g.model(), [[images(1, 3, 32, 32).numpy() * 2], [blank]])


class Head(nn.Module):
    """Class scores and boxes at every place of a feature map."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.classes, self.boxes = nn.Conv2d(8, 6, 1), nn.Conv2d(8, 8, 1)

    def forward(self, x):
        x = F.relu(self.conv(x))
        n, _, h, w = x.shape
        flat = lambda y, size: y.reshape(n, 2, size, h, w).permute(0, 3, 4, 1, 2).reshape(n, h * w * 2, size)
        return flat(self.classes(x), 3), flat(self.boxes(x), 4)


class SharedHead(nn.Module):
    """One head on feature maps of three sizes; the second convolution of the backbone is used twice."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 8, 3, stride=2, padding=1)
        self.head = Head()

    def forward(self, image):
        levels = [F.relu(self.stem(image))]
        for _ in range(2):
            levels.append(F.relu(self.down(levels[-1])))
        classes, boxes = zip(*(self.head(level) for level in levels))
        return torch.cat(classes, 1), torch.cat(boxes, 1)


@case("net_shared_head")
def shared_head(_):
    return torch_case(SharedHead(), [(images(1, 3, 16, 16),)])


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        return self.fc(F.relu(self.conv2(F.relu(self.conv1(x)))).mean((2, 3)))


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = Tower()

    def forward(self, left, right):
        return F.cosine_similarity(self.tower(left), self.tower(right))


@case("net_siamese")
def siamese(_):
    return torch_case(Siamese(), [(images(2, 3, 8, 8), images(2, 3, 8, 8) * -0.5)])
