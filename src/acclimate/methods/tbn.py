"""T-BN: test-time normalisation (Schneider et al., 2020; Nado et al., 2020)."""

from ..adapter import Adapter


class TBN(Adapter):
    """Normalises by the target's statistics alone: alpha-BN with alpha 0.

    The trap: on large shifts of domain it is often worse than the source model, and on a
    class-sorted stream it collapses.
    """

    fixed_alpha = 0.0
