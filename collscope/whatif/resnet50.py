"""ResNet50's weighted layers, derived from its architecture (pure).

He et al. 2015 (arXiv 1512.03385) table 1, in the variant and with the names of Keras
(keras.applications.resnet50 of Keras 2.2): convolutions have a bias, batch normalisation counts
scale, shift, moving mean and moving variance. The order is that of `model.summary()`, by depth in
the graph: in a stage's first block the two convolutions that meet in the addition stand side by
side, before their normalisations.
"""

from __future__ import annotations

from collections.abc import Iterator

from collscope.whatif.layers import Layer

# stage, blocks, channels of the inner convolutions; the outer have four times as many
_STAGES = ((2, 3, 64), (3, 4, 128), (4, 6, 256), (5, 3, 512))
_EXPANSION = 4
_CLASSES = 1000


def resnet50() -> tuple[Layer, ...]:
    """The 107 layers with weights, 25,636,712 parameters together."""
    return tuple(_layers())


def _layers() -> Iterator[Layer]:
    yield Layer("conv1", _conv(7, 3, 64))
    yield Layer("bn_conv1", _norm(64))
    inputs = 64
    for stage, blocks, inner in _STAGES:
        for block in "abcdef"[:blocks]:
            yield from _block(f"{stage}{block}", inputs, inner, first=block == "a")
            inputs = inner * _EXPANSION
    yield Layer("fc1000", inputs * _CLASSES + _CLASSES)


def _block(name: str, inputs: int, inner: int, *, first: bool) -> Iterator[Layer]:
    outer = inner * _EXPANSION
    yield Layer(f"res{name}_branch2a", _conv(1, inputs, inner))
    yield Layer(f"bn{name}_branch2a", _norm(inner))
    yield Layer(f"res{name}_branch2b", _conv(3, inner, inner))
    yield Layer(f"bn{name}_branch2b", _norm(inner))
    yield Layer(f"res{name}_branch2c", _conv(1, inner, outer))
    if first:
        yield Layer(f"res{name}_branch1", _conv(1, inputs, outer))
    yield Layer(f"bn{name}_branch2c", _norm(outer))
    if first:
        yield Layer(f"bn{name}_branch1", _norm(outer))


def _conv(kernel: int, inputs: int, outputs: int) -> int:
    return (kernel * kernel * inputs + 1) * outputs


def _norm(channels: int) -> int:
    return 4 * channels
