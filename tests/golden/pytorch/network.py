"""Builds a network of models/networks in PyTorch, straight from its text proto.

    network = TrainableNetwork(load_network("models/networks/resnet50_v1.5.textproto"))
    loss = network(images, labels)

Used to make golden values and as the reference of the speed benchmark. Needs PyTorch (Debian:
python3-torch) and nothing else.
"""

import re

import torch
import torch.nn.functional as F

_TOKEN = re.compile(r'#[^\n]*|"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"#]+')


def parse_text_proto(text):
    """Message -> dict of lists: every field may be repeated. Numbers and enums stay strings."""
    tokens = [t for t in _TOKEN.findall(text) if not t.startswith("#")]
    position = 0

    def value(token):
        return token[1:-1] if token.startswith('"') else token

    def message():
        nonlocal position
        fields = {}
        while position < len(tokens) and tokens[position] != "}":
            name = tokens[position]
            position += 1
            if tokens[position] == ":":
                position += 1
            if tokens[position] == "{":
                position += 1
                fields.setdefault(name, []).append(message())
                position += 1
            elif tokens[position] == "[":
                position += 1
                while tokens[position] != "]":
                    if tokens[position] != ",":
                        fields.setdefault(name, []).append(value(tokens[position]))
                    position += 1
                position += 1
            else:
                fields.setdefault(name, []).append(value(tokens[position]))
                position += 1
        return fields

    return message()


_KINDS = ("convolution", "pooling", "relu", "lrn", "batch_norm", "concat", "add", "dropout",
          "fully_connected", "softmax_loss")


class Layer:
    def __init__(self, fields):
        self.name = fields["name"][0]
        self.auxiliary = fields.get("auxiliary", ["false"])[0] == "true"
        self.kind = next(k for k in _KINDS if k in fields)
        self.fields = fields[self.kind][0]
        self.inputs = fields.get("inputs", [])

    def number(self, name, default=0.0):
        return float(self.fields[name][0]) if name in self.fields else default

    def integer(self, name, default=0):
        return int(self.number(name, default))

    def flag(self, name):
        return self.fields.get(name, ["false"])[0] == "true"


def load_network(path, auxiliary=False):
    """(image size {c, h, w}, classes, layers), auxiliary layers only if asked for."""
    with open(path) as file:
        fields = parse_text_proto(file.read())
    size = fields["input"][0]
    size = [int(size[k][0]) for k in ("channels", "height", "width")]
    layers = []
    before, before_main = "data", "data"
    for layer in map(Layer, fields["layers"]):
        if not layer.inputs:
            # A main layer never continues an auxiliary head, which may be left out.
            layer.inputs = [before if layer.auxiliary else before_main]
        before = layer.name
        if not layer.auxiliary:
            before_main = layer.name
        if auxiliary or not layer.auxiliary:
            layers.append(layer)
    return size, int(fields["classes"][0]), layers


class TrainableNetwork(torch.nn.Module):
    """`tensors` are the parameters in forward order; forward() gives the weighted loss."""

    def __init__(self, network, dropout=True):
        super().__init__()
        size, self.classes, self.layers = network
        self.dropout = dropout
        self.tensors = []  # (name, parameter)
        self.modules_by_name = torch.nn.ModuleList()
        self.module_of = {}
        shapes = {"data": size}
        consumers = {}
        for layer in self.layers:
            for name in layer.inputs:
                consumers[name] = consumers.get(name, 0) + 1
        for layer in self.layers:
            module = None
            c, h, w = shapes[layer.inputs[0]]
            if layer.kind == "convolution":
                module = torch.nn.Conv2d(c, layer.integer("output_channels"),
                                         layer.integer("kernel"), layer.integer("stride", 1),
                                         layer.integer("pad"), groups=layer.integer("groups", 1),
                                         bias=not layer.flag("no_bias"))
            elif layer.kind == "batch_norm":
                module = torch.nn.BatchNorm2d(c, eps=layer.number("epsilon", 1e-5))
            elif layer.kind == "fully_connected":
                module = torch.nn.Linear(c * h * w, layer.integer("outputs"),
                                         bias=not layer.flag("no_bias"))
            if module is not None:
                self.modules_by_name.append(module)
                self.module_of[layer.name] = module
                names = (".gamma", ".beta") if layer.kind == "batch_norm" else (".weight", ".bias")
                self.tensors.append((layer.name + names[0], module.weight))
                if module.bias is not None:
                    self.tensors.append((layer.name + names[1], module.bias))
            # Shapes by running the layer on one zero image: PyTorch's own rules.
            with torch.no_grad():
                inputs = [torch.zeros([1] + list(shapes[name])) for name in layer.inputs]
                if layer.kind == "softmax_loss":
                    shapes[layer.name] = shapes[layer.inputs[0]]
                elif layer.kind == "batch_norm":
                    shapes[layer.name] = [c, h, w]
                else:
                    out = self._run(layer, inputs)
                    shapes[layer.name] = (list(out.shape[1:]) + [1, 1])[:3]
            # As torchvision's models: ReLU in place wherever nobody else reads its input.
            layer.in_place = layer.kind == "relu" and consumers[layer.inputs[0]] == 1

    def _run(self, layer, inputs):
        x = inputs[0]
        if layer.kind in ("convolution", "batch_norm"):
            return self.module_of[layer.name](x)
        if layer.kind == "fully_connected":
            return self.module_of[layer.name](torch.flatten(x, 1))
        if layer.kind == "relu":
            return F.relu(x, inplace=getattr(layer, "in_place", False))
        if layer.kind == "pooling":
            method = layer.fields["method"][0]
            if layer.flag("global"):
                return F.adaptive_avg_pool2d(x, 1) if "AVERAGE" in method else F.adaptive_max_pool2d(x, 1)
            kernel, stride, pad = layer.integer("kernel"), layer.integer("stride", 1), layer.integer("pad")
            ceil = layer.flag("ceil_mode")
            if method == "METHOD_MAX":
                return F.max_pool2d(x, kernel, stride, pad, ceil_mode=ceil)
            return F.avg_pool2d(x, kernel, stride, pad, ceil_mode=ceil,
                                count_include_pad=method == "METHOD_AVERAGE_INCLUDE_PADDING")
        if layer.kind == "lrn":
            return F.local_response_norm(x, layer.integer("local_size"), layer.number("alpha"),
                                         layer.number("beta"), layer.number("k", 1.0) or 1.0)
        if layer.kind == "concat":
            return torch.cat(inputs, 1)
        if layer.kind == "add":
            total = inputs[0] + inputs[1]
            for more in inputs[2:]:
                total = total + more
            return total
        if layer.kind == "dropout":
            return F.dropout(x, layer.number("ratio")) if self.dropout and self.training else x
        raise ValueError(layer.kind)

    def forward(self, images, labels, keep=None):
        """`keep`, if given, receives every layer's output (cloned: ReLU works in place)."""
        values = {"data": images}
        loss = 0
        for layer in self.layers:
            inputs = [values[name] for name in layer.inputs]
            if layer.kind == "softmax_loss":
                weight = layer.number("loss_weight", 1.0) or 1.0
                loss = loss + weight * F.cross_entropy(inputs[0].float() if inputs[0].dtype ==
                                                       torch.bfloat16 else inputs[0], labels)
                continue
            values[layer.name] = self._run(layer, inputs)
            if keep is not None:
                keep[layer.name] = values[layer.name].detach().clone()
        return loss
