"""Alpha-BN: calibrated statistics, no training (Eq. 3 and 4)."""

from ..adapter import Adapter


class AlphaBN(Adapter):
    """Normalises by a mix of source and target statistics; no weight is touched.

        mu    = alpha mu_s    + (1 - alpha) mu_t
        sigma = alpha sigma_s + (1 - alpha) sigma_t

    As an adapter, for `statistics="stream"`; for the statistics of each batch the function
    `alpha_bn` does the same.

    >>> import acclimate as ac, torch
    >>> model = torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.ReLU())
    >>> with ac.AlphaBN(model, alpha=0.9, statistics="stream") as adapter:
    ...     for frame in torch.randn(5, 1, 3, 8, 8):
    ...         y = adapter(frame)
    """
