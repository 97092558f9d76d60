"""What may go into an adapter, and what comes out."""

import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor, nn

LABELS = ("label", "labels", "label_ids", "target", "targets", "y")

FindLogits = Callable[[Any], Tensor]


def admit(
    x: Any, inputs: Mapping[str, Any], *, model: nn.Module, check: bool
) -> tuple[tuple[Any, ...], dict[str, Any], int]:
    """The arguments for the model and the number of samples in them, or an error of one sentence.

    `x` is a floating point tensor or, for detection, a list of them; `inputs` are the model's own
    keywords, which may hold integers. Labels are refused: an adapter must never see one.
    """
    labels = [name for name in _names(inputs) if name in LABELS]
    if labels:
        raise ValueError(
            f"An adapter got {labels[0]!r}, which names a label; it adapts without labels and must "
            "not see them: pass only what the model needs to predict."
        )
    if (x is None) == (not inputs):
        got = "nothing" if x is None else "x and keywords"
        raise TypeError(f"An adapter takes either x or the model's own keywords, but got {got}.")
    if x is not None:
        _check_x(x)
    tree = (x,) if x is not None else dict(inputs)
    tensors = list(_tensors(tree))
    if not tensors:
        raise TypeError("An adapter got no tensor: pass the batch as x or as the model's keywords.")
    for tensor in tensors:
        if tensor.is_floating_point():  # integers may be lengths, which belong on the CPU
            _check_device(tensor, model)
            if check:
                _check_finite(tensor)
    batched = next((tensor for tensor in tensors if tensor.dim() > 0), None)
    if batched is None:
        raise ValueError(
            f"The input has shape {tuple(tensors[0].shape)}, but the first dimension must count "
            "the samples: for a single one, x.unsqueeze(0)."
        )
    samples = len(x) if isinstance(x, list) else batched.shape[0]
    tree = map_tensors(_usable, tree)
    return (tree, {}, samples) if x is not None else ((), tree, samples)


def logits_of(output: Any, find: FindLogits | None) -> Tensor | None:
    """The logits in a model's answer: itself, under "out" or "logits", or where `find` says."""
    if find is not None:
        return find(output)
    if isinstance(output, Mapping):
        output = output.get("out", output.get("logits"))
    return output if isinstance(output, Tensor) else None


def require_logits(output: Any, find: FindLogits | None, method: str) -> Tensor:
    """The logits, or an error that says how to name them."""
    logits = logits_of(output, find)
    if logits is None or logits.dim() < 2:
        got = type(output).__name__ if logits is None else f"logits of shape {tuple(logits.shape)}"
        raise TypeError(
            f"{method} needs logits with the classes in dimension 1, but the model answered with "
            f"{got}: a tensor, or a mapping with 'out' or 'logits', is understood; for anything "
            "else pass logits=, a function that finds them in the answer."
        )
    return logits


def detached(output: Any) -> Any:
    """The answer in its own type and structure, its tensors without a graph."""
    return map_tensors(Tensor.detach, output)


def map_tensors(function: Callable[[Tensor], Tensor], tree: Any) -> Any:
    """The same structure with a function applied to its tensors; what it holds else is shared."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, MutableMapping):
        mapped: Any = copy.copy(tree)
        for key, value in tree.items():
            mapped[key] = map_tensors(function, value)
        return mapped
    if isinstance(tree, Mapping):
        return {key: map_tensors(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(function, value) for value in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_tensors(function, value) for value in tree)
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        mapped = copy.copy(tree)
        for field in dataclasses.fields(tree):
            value = map_tensors(function, getattr(tree, field.name))
            object.__setattr__(mapped, field.name, value)
        return mapped
    if type(tree).__module__ != "builtins" and hasattr(tree, "__dict__") and not callable(tree):
        mapped = copy.copy(tree)
        for name, value in vars(tree).items():
            mapped.__dict__[name] = map_tensors(function, value)
        return mapped
    return tree


def _check_x(x: Any) -> None:
    images = x if isinstance(x, list) else [x]
    if not images or not all(isinstance(image, Tensor) for image in images):
        got = f"a list of {len(images)}" if isinstance(x, list) else type(x).__name__
        raise TypeError(
            f"x must be a tensor, or a list of tensors for a detection network, but is {got}; of a "
            "pair (images, labels) pass the images alone."
        )
    for image in images:
        if not image.is_floating_point():
            raise TypeError(
                f"x is {image.dtype}, but must be floating point and prepared as for the model "
                "itself, such as x.float() / 255; integers go in by the model's own keywords."
            )


def _check_device(tensor: Tensor, model: nn.Module) -> None:
    """The tensor lies on a device of the model's; a model may lie on several."""
    devices: dict[torch.device, None] = {}
    for held in itertools.chain(model.parameters(), model.buffers()):
        if held.device == tensor.device:
            return
        devices[held.device] = None
    if devices:
        device = str(next(iter(devices)))
        raise ValueError(
            f"The input is on {tensor.device}, but the model is on {device}: move one of them, "
            f"such as x.to({device!r})."
        )


def _check_finite(tensor: Tensor) -> None:
    finite = tensor.isfinite()
    if not finite.all():
        raise ValueError(
            f"The input of shape {tuple(tensor.shape)} holds {int((~finite).sum())} values that "
            "are NaN or infinite, which would spoil the statistics: drop those samples, or pass "
            "check=False to leave out this check."
        )


def _names(tree: Any) -> Iterator[str]:
    """The keys of mappings, nested ones too."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield key
            yield from _names(value)


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        for value in tree.values():
            yield from _tensors(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from _tensors(value)


def _usable(tensor: Tensor) -> Tensor:
    """Without a graph, and not made under inference_mode, which autograd could not save."""
    return tensor.detach().clone() if tensor.is_inference() else tensor.detach()
