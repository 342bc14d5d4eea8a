#!/usr/bin/env python3
"""Writes the golden values of worker/backend/cpu/onednn_engine_golden_test.cc.

    sudo apt-get install python3-torch
    /usr/bin/python3 tests/golden/pytorch/make_goldens.py        # from the repository's root

One training step of each network in PyTorch, in double precision, dropout off: loss, and of every
gradient and some outputs the Euclidean norm, by how much PyTorch's own fp32 run deviates from it
(Euclidean distance as a share of the norm) and sampled values. Weights and images are not stored:
both sides compute them from the same integer hash (`hashed` here, HashedValue in
worker/backend/cpu/engine_testing.h).
"""

import math
import os
import sys

import numpy
import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from network import TrainableNetwork, load_network  # noqa: E402

NETWORKS = [("lenet5", 4), ("cifar_resnet20", 4), ("alexnet_owt", 2), ("alexnet_caffe", 2),
            ("googlenet_bvlc+aux", 2), ("googlenet_bn", 4), ("resnet50_v1.5", 4)]
SAMPLES = 8
IMAGES = 1000000  # The `stream` of the images; tensors use their index.


def hashed(stream, count):
    """`count` values in [-1, 1): a 32-bit integer hash (Murmur3's finaliser) of stream, index."""
    with numpy.errstate(over="ignore"):
        h = numpy.arange(count, dtype=numpy.uint32) * numpy.uint32(2654435761)
        h = h + numpy.uint32((stream * 40503 + 12345) & 0xffffffff)
        h ^= h >> numpy.uint32(16)
        h *= numpy.uint32(0x85ebca6b)
        h ^= h >> numpy.uint32(13)
        h *= numpy.uint32(0xc2b2ae35)
        h ^= h >> numpy.uint32(16)
    return h.astype(numpy.float64) / 2147483648.0 - 1.0


def weights(index, name, shape):
    count = int(numpy.prod(shape))
    values = hashed(index, count)
    if name.endswith((".bias", ".beta")):
        values = 0.1 * values
    elif name.endswith(".gamma"):
        values = 1.0 + 0.25 * values
    else:
        values = math.sqrt(6.0 * shape[0] / count) * values
    # Both sides start from the same fp32 numbers.
    return torch.from_numpy(values.astype(numpy.float32).astype(numpy.float64)).reshape(shape)


def line(kind, name, exact, single):
    flat = exact.detach().reshape(-1)
    norm = flat.norm().item()
    spread = (single.detach().double().reshape(-1) - flat).norm().item() / norm
    count = flat.numel()
    picks = [(j * count // SAMPLES + j) % count for j in range(SAMPLES)]
    samples = " ".join("%d:%.6g" % (i, flat[i].item()) for i in picks)
    return "%s %s %.8g %.2g %s\n" % (kind, name, norm, spread, samples)


def train_once(description, batch, precision):
    """(network with gradients, loss, outputs by layer)."""
    size, classes, _ = description
    network = TrainableNetwork(description, dropout=False).to(precision)
    network.train()
    with torch.no_grad():
        for index, (tensor, parameter) in enumerate(network.tensors):
            parameter.copy_(weights(index, tensor, parameter.shape))
    images = torch.from_numpy(hashed(IMAGES, batch * size[0] * size[1] * size[2])
                              .astype(numpy.float32)).to(precision)
    labels = torch.tensor([(7 * n + 3) % classes for n in range(batch)])
    outputs = {}
    loss = network(images.reshape([batch] + size), labels, outputs)
    loss.backward()
    return network, loss, outputs


def golden(name, batch):
    base = name.split("+")[0]
    description = load_network("models/networks/%s.textproto" % base, name.endswith("+aux"))
    network, loss, outputs = train_once(description, batch, torch.float64)
    single, _, single_outputs = train_once(description, batch, torch.float32)
    text = "# Made by make_goldens.py. KIND NAME NORM FP32_SPREAD INDEX:VALUE...\n"
    text += "network %s batch %d\nloss %.9g\n" % (name, batch, loss.item())
    for layer in description[2]:
        if layer.kind in ("pooling", "lrn", "concat", "fully_connected") and layer.name in outputs:
            # A ReLU behind it may be fused into it: then the engine has no such output.
            text += line("output", layer.name, outputs[layer.name], single_outputs[layer.name])
    for (tensor, parameter), (_, other) in zip(network.tensors, single.tensors):
        text += line("gradient", tensor, parameter.grad, other.grad)
    return text


def main():
    torch.set_num_threads(2)
    for name, batch in NETWORKS:
        path = "tests/golden/pytorch/%s.txt" % name.replace("+", "_")
        with open(path, "w") as file:
            file.write(golden(name, batch))
        print(path)


if __name__ == "__main__":
    main()
