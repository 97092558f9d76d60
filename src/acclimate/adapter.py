"""What every method shares: predict, adapt, reset, release."""

import contextlib
import functools
import json
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from . import state
from .counts import Counts
from .hold import Hold
from .hooks import check_loss, check_mask
from .inputs import FindLogits, admit, detached, logits_of, require_logits
from .layers import calibration_of
from .norm import Alphas, calibrate_all
from .options import alpha_for, check_options
from .statistics import Batch, Stream
from .trained import Optimizer, Trained, optimizer_from, slots_of, uses_float16


class Adapter(nn.Module):
    """A model that adapts to the stream it answers. Each method is a subclass.

    A method is a policy: which statistics and parameters (options), which loss and which samples
    count (the hooks `loss` and `select`). `adapter(x)` answers and adapts, `adapter.predict(x)`
    answers and changes nothing. The answer is that of the forward before the update.

    Args:
        model: the source network. It is held until `release`, its weights changed in place.
        alpha: weight of the source's statistics, see `alpha_bn`; None: the method's own.
        mix: "std" (Eq. 4) or "var".
        statistics: "batch", or "stream": carried over the batches, for small ones.
        memory: how many samples a stream's statistics remember (at least five batches).
        parameters: "bn" trains BN's affine parameters, "norm" those of every normalisation.
        optimizer: "adam", "sgd", or a function from the parameters to an optimiser.
        lr: learning rate.
        betas: Adam's.
        momentum: SGD's.
        nesterov: SGD's.
        steps: updates a batch.
        episodic: start every batch from the source.
        temperature: divides the logits in the loss.
        logits: a function that finds the logits in the model's answer, where that is neither a
            tensor nor a mapping with "out" or "logits".
        check: refuse inputs that are not finite, for the price of reading them.
    """

    default_alpha: ClassVar[float | None] = None
    """Alpha where none is given; None: it must be given."""
    fixed_alpha: ClassVar[float | None] = None
    """Alpha of a method that leaves no choice."""

    def __init_subclass__(cls, **defaults: Any) -> None:
        """`class Core(Adapter, temperature=2.5)` states a method's own defaults."""
        super().__init_subclass__()
        if defaults:
            cls.__init__ = functools.partialmethod(cls.__init__, **defaults)  # type: ignore[assignment, method-assign]

    def __init__(
        self,
        model: nn.Module,
        *,
        alpha: Alphas | None = None,
        mix: str = "std",
        statistics: str = "batch",
        memory: float = 1000,
        parameters: str = "bn",
        optimizer: Optimizer = "adam",
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        momentum: float = 0.9,
        nesterov: bool = False,
        steps: int = 1,
        episodic: bool = False,
        temperature: float = 1.0,
        logits: FindLogits | None = None,
        check: bool = True,
    ):
        options = {k: v for k, v in locals().items() if k not in ("self", "model", "__class__")}
        super().__init__()
        check_options(options)
        self.options = options
        self.method = type(self).__name__
        self.trains = type(self).loss is not Adapter.loss
        self.model = model
        self.hold = Hold(model, self.method)
        self.stream = Stream(memory) if statistics == "stream" else None
        self.trained: Trained | None = None
        try:
            with torch.inference_mode(False):  # or its tensors could not be trained afterwards
                self._calibrate()
                if self.trains:
                    self._train()
        except BaseException:
            self.hold.undo()
            raise
        self.hold.quiet()
        self.counts = Counts()

    def loss(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """What a step goes down; a method without one trains nothing."""
        raise TypeError(f"{self.method} trains nothing.")

    def select(self, logits: Tensor) -> Tensor | None:
        """A boolean mask of the samples that count; None: all of them."""
        return None

    def forward(self, x: Any = None, /, **inputs: Any) -> Any:
        """Answer and adapt."""
        args, keywords, samples = self._admit(x, inputs)
        if samples == 0:
            return self._answer(args, keywords)
        if self.options["episodic"]:
            self._rewind()
        with torch.inference_mode(False):
            output, updates, skipped = self._adapt(args, keywords)
        self.counts.add(self.method, samples, updates, skipped)
        if self.stream is None and self.counts.may_advise(samples):
            logits = logits_of(output, self.options["logits"])
            self.counts.advise(samples, logits, map(calibration_of, self.hold.layers))
        return detached(output)

    def predict(self, x: Any = None, /, **inputs: Any) -> Any:
        """Answer and change nothing at all."""
        args, keywords, _ = self._admit(x, inputs)
        return self._answer(args, keywords)

    def reset(self) -> None:
        """The state of construction, bit for bit: values, optimiser, statistics and counts."""
        self.require_alive()
        self._rewind()
        self.counts = Counts(advised=self.counts.advised)

    def release(self) -> nn.Module:
        """The source model again, bit for bit; the adapter is spent."""
        self.hold.release()
        return self.model

    def save(self, path: str | Path) -> None:
        """Write the adapter's state to a safetensors file, atomically."""
        self.require_alive()
        state.write(path, {**self._identity(), "counts": json.dumps(self.counts)}, self._tensors())

    @torch.inference_mode(False)
    def load(self, path: str | Path) -> None:
        """Take the state from a file that `save` wrote; anything that differs is an error."""
        self.require_alive()
        header, tensors = state.read(path, self._identity())
        if self.trained is not None:
            self.trained.load(tensors)
        if self.stream is not None:
            for name, carried in self.stream.tensors().items():
                carried.copy_(tensors[name])
        self.counts = Counts(json.loads(header["counts"]))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{self.method}({type(self.model).__name__}, {options})"

    def _calibrate(self) -> None:
        """Calibrate BN; a network without BN that is trained all the same needs no alpha."""
        alpha = self.options["alpha"] = alpha_for(self, self.model, self.options)
        if alpha is None or self.fixed_alpha == 1:
            return
        batch, stream = Batch(), self.stream
        source = (lambda *layer: batch) if stream is None else stream.layer
        calibrate_all(self.model, alpha, self.options["mix"], source)

    def _train(self) -> None:
        slots = slots_of(self.model, self.options["parameters"])
        names = ("optimizer", "lr", "betas", "momentum", "nesterov")
        make = functools.partial(optimizer_from, **{name: self.options[name] for name in names})
        self.hold.train_only(slots)
        self.trained = Trained(slots, make)

    def require_alive(self) -> None:
        """Raise if the adapter was released."""
        if self.hold.released:
            raise ValueError(
                f"This {self.method} was released and {type(self.model).__name__} is the source "
                "model again: construct a new adapter."
            )

    def _admit(self, x: Any, inputs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], int]:
        self.require_alive()
        self.hold.quiet()
        with torch.inference_mode(False):
            return admit(x, inputs, model=self.model, check=self.options["check"])

    def _answer(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self.trained is not None:
            self.trained.follow()
        with torch.inference_mode(False), torch.no_grad():
            return self.model(*args, **keywords)

    def _adapt(
        self, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[Any, int, str | None]:
        """All steps on a batch: the last forward's answer, the updates, why a step was skipped."""
        for step in range(self.options["steps"] if self.trains else 1):
            used = [] if self.trained is None else self.trained.follow()
            observing = contextlib.nullcontext() if self.stream is None else self.stream.observe()
            with torch.set_grad_enabled(self.trains), observing:
                output = self.model(*args, **keywords)
                skipped = None if self.trained is None else self._step(self.trained, output, used)
            if skipped is not None:
                return output, step, skipped
        if self.stream is not None:
            self.stream.commit()
        return output, self.options["steps"] if self.trains else 0, None

    def _step(self, trained: Trained, output: Any, used: list[Tensor]) -> str | None:
        logits = require_logits(output, self.options["logits"], self.method)
        mask = check_mask(self.select(logits))
        if mask is not None and not mask.any():
            return "empty selection"
        loss = check_loss(self.loss(logits, mask))
        return trained.step(loss, used, scaled=uses_float16(self.model, logits))

    @torch.inference_mode(False)
    def _rewind(self) -> None:
        self.hold.restore_values()
        if self.trained is not None:
            self.trained.reset(self.hold.values.values())
        if self.stream is not None:
            self.stream.reset()

    def _identity(self) -> dict[str, str]:
        """What a file must agree in with this adapter."""
        sources = self.hold.values | ({} if self.stream is None else self.stream.sources())
        return {
            "method": self.method,
            "options": state.options_json(self.options),
            "source": state.source_json(sources),
        }

    def _tensors(self) -> dict[str, Tensor]:
        trained = {} if self.trained is None else self.trained.tensors()
        return trained | ({} if self.stream is None else self.stream.tensors())
