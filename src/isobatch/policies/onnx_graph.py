"""An exported network as an ONNX graph, written from the description of its layers.

Input `observation` [batch, ...] as the environment gives it; outputs `policy` [batch, ...], what the distribution is
made of, and `value` [batch]. The description is in the model's metadata. ONNX has images with channels first, the
description has them last: they are turned around each convolution, and runtimes remove turns that cancel.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from isobatch.policies.exports import Description, Layer

OPSET, IR_VERSION = 20, 9  # 20 is the first with the gelu that is used here; any runtime since 2024 knows both
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # axes of images with channels last, and with channels first
SIMPLE_ACTIVATIONS = {"tanh": "Tanh", "relu": "Relu", "elu": "Elu"}

Attribute = int | str | list[int] | tuple[int, ...]


class GraphBuilder:
    """Adds nodes; a layer that two networks share is added once."""

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self.tensors = tensors
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self.outputs: dict[tuple[str, str], str] = {}  # by name of a layer and of its input

    def node(self, kind: str, inputs: list[str], **attributes: Attribute) -> str:
        output = f"{kind.lower()}_{len(self.nodes)}"
        node = helper.make_node(kind, inputs, [output])
        node.attribute.extend(helper.make_attribute(name, value) for name, value in sorted(attributes.items()))
        self.nodes.append(node)
        return output

    def constant(self, name: str, value: np.ndarray | float) -> str:
        self.constants[name] = np.asarray(value, np.float32)
        return name

    def network(self, layers: list[Layer], x: str) -> str:
        for layer in layers:
            key = (layer["name"], x)
            if key not in self.outputs:
                self.outputs[key] = self.activation(layer.get("activation"), self.layer(layer, x))
            x = self.outputs[key]
        return x

    def layer(self, layer: Layer, x: str) -> str:
        name = layer["name"]
        match layer["kind"]:
            case "normalize":
                mean = self.constant(layer["mean"], self.tensors[layer["mean"]])
                std = self.constant(layer["std"], self.tensors[layer["std"]] + np.float32(layer["eps"]))
                x = self.node("Div", [self.node("Sub", [x, mean]), std])
                clip = layer["clip"]
                if clip is None:
                    return x
                return self.node("Clip", [x, self.constant(f"{name}.low", -clip), self.constant(f"{name}.high", clip)])
            case "divide":
                return self.node("Div", [x, self.constant(f"{name}.by", layer["by"])])
            case "channels_last":
                return self.node("Transpose", [x], perm=LAST)
            case "conv":
                weight = self.constant(layer["weight"], self.tensors[layer["weight"]].transpose(3, 2, 0, 1))
                bias = self.constant(layer["bias"], self.tensors[layer["bias"]])
                return self.on_images("Conv", [x, weight, bias], layer)
            case "max_pool":
                return self.on_images("MaxPool", [x], layer, kernel_shape=[layer["size"]] * 2)
            case "residual":
                return self.node("Add", [x, self.network(layer["layers"], x)])
            case "activation":
                return x
            case "flatten":
                return self.node("Flatten", [x], axis=1)
            case "dense":
                parts = [self.constant(part, self.tensors[part]) for part in (layer["weight"], layer["bias"])]
                return self.node("Gemm", [x, *parts])
        raise ValueError(f"unknown layer {layer['kind']!r}")

    def on_images(self, kind: str, inputs: list[str], layer: Layer, **attributes: Attribute) -> str:
        strides, pads = [layer["stride"]] * 2, [layer["padding"]] * 4
        turned = [self.node("Transpose", inputs[:1], perm=FIRST), *inputs[1:]]
        return self.node("Transpose", [self.node(kind, turned, strides=strides, pads=pads, **attributes)], perm=LAST)

    def activation(self, activation: str | None, x: str) -> str:
        match activation:
            case None:
                return x
            case "silu":
                return self.node("Mul", [x, self.node("Sigmoid", [x])])
            case "gelu":
                return self.node("Gelu", [x], approximate="tanh")
        return self.node(SIMPLE_ACTIVATIONS[activation], [x])


def onnx_model(tensors: Mapping[str, np.ndarray], description: Description) -> bytes:
    """A model that onnx's checker has accepted, serialized."""
    graph = GraphBuilder(tensors)
    seen = graph.node("Cast", ["observation"], to=onnx.TensorProto.FLOAT)
    for name, kind, inputs in (
        ("policy", "Identity", [graph.network(description["policy"]["layers"], seen)]),
        ("value", "Squeeze", [graph.network(description["value"]["layers"], seen), "last_axis"]),
    ):
        graph.nodes.append(helper.make_node(kind, inputs, [name]))
    observation = description["observation"]
    obs_type = helper.np_dtype_to_tensor_dtype(np.dtype(observation["dtype"]))
    outputs = description["policy"]["layers"][-1]["shape"][-1]
    constants = [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in graph.constants.items()]
    constants.append(numpy_helper.from_array(np.array([1]), "last_axis"))
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "policy",
            [helper.make_tensor_value_info("observation", obs_type, ["batch", *observation["shape"]])],
            [
                helper.make_tensor_value_info("policy", onnx.TensorProto.FLOAT, ["batch", outputs]),
                helper.make_tensor_value_info("value", onnx.TensorProto.FLOAT, ["batch"]),
            ],
            constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        producer_name="isobatch",
        producer_version=description["isobatch"],
        ir_version=IR_VERSION,
    )
    helper.set_model_props(model, {"description": json.dumps(description, allow_nan=False)})
    onnx.checker.check_model(model, full_check=True)
    content: bytes = model.SerializeToString()
    return content
