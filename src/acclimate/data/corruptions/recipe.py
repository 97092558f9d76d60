"""The published strengths: one row a corruption, one entry a severity.

Source: the scripts make_cifar_c.py and make_imagenet_c.py of Hendrycks and Dietterich,
"Benchmarking Neural Network Robustness to Common Corruptions and Perturbations" (ICLR 2019),
https://github.com/hendrycks/robustness. An entry holds the numbers that its function takes, in
order; lengths are in pixels of the recipe's own image size.
"""

from __future__ import annotations

Strengths = dict[str, tuple[tuple[float, ...], ...]]

CIFAR: Strengths = {
    "gaussian_noise": ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
    "shot_noise": ((500,), (250,), (100,), (75,), (50,)),
    "impulse_noise": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "brightness": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
    "contrast": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
    "elastic_transform": (
        (0, 0, 2.56),
        (1.6, 6.4, 2.24),
        (2.56, 1.92, 1.92),
        (3.2, 1.28, 1.6),
        (3.2, 0.96, 0.96),
    ),
    "pixelate": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
    "jpeg_compression": ((80,), (65,), (58,), (50,), (40,)),
}

IMAGENET: Strengths = {
    "gaussian_noise": ((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
    "shot_noise": ((60,), (25,), (12,), (5,), (3,)),
    "impulse_noise": ((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    "brightness": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
    "contrast": ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
    # The published script computes these from 244, which should have been 224; so do we.
    "elastic_transform": (
        (488, 170.8, 24.4),
        (488, 19.52, 48.8),
        (12.2, 2.44, 4.88),
        (17.08, 2.44, 4.88),
        (29.28, 2.44, 4.88),
    ),
    "pixelate": ((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
    "jpeg_compression": ((25,), (18,), (15,), (10,), (7,)),
}


def strength(name: str, severity: int, side: int) -> tuple[tuple[float, ...], float]:
    """The numbers of a corruption for images of this shorter side, and the scale of its lengths.

    32 and 224 pixels have their own published recipes, with scale 1. Any other size takes the
    recipe whose size is nearer in ratio, with its lengths scaled in proportion.

    >>> strength("gaussian_noise", 5, 32)
    ((0.1,), 1.0)
    >>> strength("gaussian_noise", 5, 448)
    ((0.38,), 2.0)
    """
    table, own = (CIFAR, 32) if side * side < 32 * 224 else (IMAGENET, 224)
    return table[name][severity - 1], side / own
