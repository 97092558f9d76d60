"""Core: pairwise class correlation optimisation (the paper, Eq. 3 to 5)."""

from torch import Tensor

from ..adapter import Adapter
from ..functional import class_correlation


class Core(Adapter, temperature=2.5):
    """Minimises the class correlation by BN's affine parameters on top of alpha-BN.

        min over gamma, beta of  1/B sum_{j != j'} p_.j^T p_.j'

    The trap: `temperature=1.0` is Eq. 5 as printed and no better than Tent; the paper's gain
    comes out with 2.5, the temperature of the loss that it builds on (MCC).
    """

    def loss(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Mean class correlation."""
        return class_correlation(logits, mask=mask, temperature=self.options["temperature"])
