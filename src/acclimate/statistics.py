"""Where the target's statistics come from: this batch, or the stream so far.

A source is called with a layer's input and answers `Statistics`. More sources come through the
same door: what they must keep is documented there.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from .functional import batch_statistics
from .functional.normalisation import is_exporting, values_a_channel, widen


class Statistics(NamedTuple):
    """What a source answers for one layer and one forward.

    `own` in [0, 1] is the weight with which this very x entered: the gradient flows through that
    part. `n` is the number of samples behind the values, which `prior` uses.
    """

    mean: Tensor
    var: Tensor
    own: float | Tensor
    n: int | Tensor


class Source(Protocol):
    """One layer's source of statistics. Values come without a gradient, in float32 or wider."""

    def __call__(self, x: Tensor, source_mean: Tensor, source_var: Tensor) -> Statistics:
        """Statistics for the input x of a layer with these source statistics."""
        ...


class Batch:
    """This batch's own statistics, exactly. It keeps nothing, so layers and threads share one."""

    def __call__(self, x: Tensor, source_mean: Tensor, source_var: Tensor) -> Statistics:
        """The batch's statistics; the source's where one value has no deviation to estimate."""
        if is_exporting() and values_a_channel(x[:1]) == 1:
            # An exported program has one path for every size of batch.
            mean, var = batch_statistics(x)
            known = torch.zeros_like(mean) + x.shape[0] >= 2
            mean, var = torch.where(known, mean, source_mean), torch.where(known, var, source_var)
            return Statistics(mean, var, 1.0, x.shape[0])
        if values_a_channel(x) < 2:
            return Statistics(source_mean, source_var, 0.0, 0)
        return Statistics(*batch_statistics(x), 1.0, x.shape[0])


class Moments(NamedTuple):
    """What a stream knows of one layer, and the samples (up to its memory) and values behind it."""

    mean: Tensor
    var: Tensor
    samples: Tensor
    values: Tensor

    def clone(self) -> "Moments":
        """The same values in tensors of their own."""
        return Moments(*(tensor.clone() for tensor in self))


class StreamLayer:
    """One layer's statistics over the stream so far, counted in samples, with bounded memory.

    Cumulative up to `memory` samples, then exponential. The memory is at least five batches, since
    one of a single batch makes a deep network oscillate.
    What a forward counts is staged and becomes `carried` with `Stream.commit`, so that a step
    that fails carries nothing. All of it are tensors, updated in place: a compiled forward sees
    no Python number that changes.
    """

    def __init__(self, stream: "Stream", source_mean: Tensor, source_var: Tensor):
        self.stream = stream
        zero = torch.zeros((), dtype=source_mean.dtype, device=source_mean.device)
        self.start = Moments(source_mean, source_var, zero, zero).clone()
        self.carried = self.start.clone()
        self.staged = self.start.clone()

    def __call__(self, x: Tensor, source_mean: Tensor, source_var: Tensor) -> Statistics:
        """Counts the batch in while the stream observes, and reads what is carried otherwise."""
        self.follow(source_mean)
        if not self.stream.observing:
            return self.read(source_mean, source_var)
        mean, var, samples, values = self.staged
        batch_mean, batch_var = batch_statistics(x)
        finite = (batch_mean + batch_var).isfinite().all()
        batch = torch.zeros_like(samples) + x.shape[0]
        memory = self.stream.memory
        own = torch.maximum(batch / (samples + batch), (batch / memory).clamp(max=0.2))
        own = torch.where(finite, own, 0)
        # A batch that is not finite weighs nothing; 0 * inf is not nothing.
        batch_mean, batch_var = (torch.where(finite, v, 0) for v in (batch_mean, batch_var))
        between = own * (1 - own) * (batch_mean - mean).square()
        counted = Moments(
            torch.lerp(mean, batch_mean, own),
            torch.lerp(var, batch_var, own) + between,
            torch.where(finite, (samples + batch).minimum((5 * batch).clamp(min=memory)), samples),
            values + values_a_channel(x) * finite,
        )
        # Fresh tensors are returned: a layer that is used twice would change them under autograd.
        torch._foreach_copy_(list(self.staged), list(counted))
        return self._answer(counted, own, source_mean, source_var)

    def read(self, source_mean: Tensor, source_var: Tensor) -> Statistics:
        """What is carried, with nothing counted."""
        return self._answer(self.carried, 0.0, source_mean, source_var)

    def _answer(
        self, moments: Moments, own: float | Tensor, source_mean: Tensor, source_var: Tensor
    ) -> Statistics:
        """The source's until two values a channel are held: one has no deviation."""
        known = moments.values >= 2
        return Statistics(
            torch.where(known, moments.mean, source_mean),
            torch.where(known, moments.var, source_var),
            own * known,
            moments.samples,
        )

    def follow(self, source_mean: Tensor) -> None:
        """Move to where the layer is after `model.to(...)`; in half precision stay float32."""
        mean = self.carried.mean
        if mean.device != source_mean.device or mean.dtype != source_mean.dtype:
            for name in ("start", "carried", "staged"):
                moved = (tensor.to(source_mean) for tensor in getattr(self, name))
                setattr(self, name, Moments(*moved))


@dataclass
class Stream:
    """The carried statistics of a whole network: when they are counted, kept and forgotten."""

    memory: float = 1000
    observing: bool = False
    layers: dict[str, StreamLayer] = field(default_factory=dict)

    def layer(self, path: str, layer: Any) -> StreamLayer:
        """The part of the layer at a path, which starts at the source's statistics."""
        source = (widen(buffer.detach()) for buffer in (layer.running_mean, layer.running_var))
        self.layers[path] = StreamLayer(self, *source)
        return self.layers[path]

    @contextmanager
    def observe(self) -> Iterator[None]:
        """Forwards inside count their batch; what they count is carried with `commit`."""
        self._copy("staged", "carried")
        self.observing = True
        try:
            yield
        finally:
            self.observing = False

    def commit(self) -> None:
        """Carry what the last forward counted."""
        self._copy("carried", "staged")

    def reset(self) -> None:
        """Back to the source's statistics, with nothing counted."""
        self._copy("carried", "start")

    def sources(self) -> dict[str, Tensor]:
        """The source's statistics, by name."""
        return self._named("start", ("mean", "var"))

    def tensors(self) -> dict[str, Tensor]:
        """All that is carried, by name."""
        return self._named("carried", Moments._fields)

    def _named(self, moments: str, fields: Iterable[str]) -> dict[str, Tensor]:
        return {
            f"statistics.{path}.{name}": getattr(getattr(layer, moments), name)
            for path, layer in self.layers.items()
            for name in fields
        }

    @torch.no_grad()
    def _copy(self, into: str, out_of: str) -> None:
        """Every layer's moments at once: on a GPU a launch or two, not four a layer."""
        layers = self.layers.values()
        if layers:
            torch._foreach_copy_(
                [tensor for layer in layers for tensor in getattr(layer, into)],
                [tensor for layer in layers for tensor in getattr(layer, out_of)],
            )
