"""Source: the network as it was trained, the baseline of every table."""

from ..adapter import Adapter


class Source(Adapter):
    """Answers with the source model; adapts nothing. For any network, with BN or without.

    >>> import acclimate as ac, torch
    >>> model = torch.nn.Sequential(torch.nn.BatchNorm1d(4)).eval()
    >>> x = torch.randn(8, 4)
    >>> y = model(x)
    >>> torch.equal(ac.Source(model)(x), y)
    True
    """

    fixed_alpha = 1.0
