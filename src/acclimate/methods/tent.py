"""Tent: test-time entropy minimisation (Wang et al., ICLR 2021, arXiv:2006.10726)."""

from torch import Tensor

from ..adapter import Adapter
from ..functional import entropy


class Tent(Adapter):
    """Minimises the entropy of the predictions by BN's affine parameters, batch by batch.

        min over gamma, beta of  mean_i H(p_i)

    With the published settings (alpha 0, Adam 1e-3) this is Tent; the paper's tables of domain
    generalisation give it an alpha of 0.9.
    """

    default_alpha = 0.0

    def loss(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Mean entropy."""
        return entropy(logits, mask=mask, temperature=self.options["temperature"])
