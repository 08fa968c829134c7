"""Exact parameters and multiply-adds of any transformer of this kind, by formula. No torch, no forward pass.

Counted as parameters: everything that is learned. Counted as multiply-adds ("FLOPs" in papers), for one image: linear
layers without biases, the products of queries with keys and of attention with values, and both for relative positions.
Normalisation, softmax, activations and additions count nothing.
"""

from __future__ import annotations

from typing import Any

from .layout import Transformer, side

COUNTS = ("parameters", "flops")


def count(name: str, sizes: Transformer, settings: Any) -> int:
    """The count of that name, of a network with these sizes and settings."""
    return {"parameters": parameters, "flops": flops}[name](sizes, settings)


def parameters(sizes: Transformer, settings: Any) -> int:
    d, patches = sizes.embedding, side(settings) ** 2
    patch = int(settings.image_channels * settings.patch_size**2)
    # Patch embedding, class token and positions, the last normalisation, the classifier.
    whole = (patch + 1) * d + (patches + 2) * d + 2 * d + (d + 1) * int(settings.classes)
    relative = 4 * table_rows(settings.relative_distance) * sizes.head_size
    return whole + sum(
        4 * d + 3 * q * (d + 1) + d * (q + 1) + relative + m * (d + 1) + d * (m + 1)
        for q, m in zip(sizes.queries, sizes.hidden, strict=True)
    )


def flops(sizes: Transformer, settings: Any) -> int:
    d, along = sizes.embedding, side(settings)
    tokens = along**2 + 1
    patches = along**2 * int(settings.image_channels * settings.patch_size**2) * d
    relative = relative_columns(along) if settings.relative_distance else 0
    blocks = (
        tokens * (4 * d * q + 2 * d * m + 2 * (tokens + relative) * q)
        for q, m in zip(sizes.queries, sizes.hidden, strict=True)
    )
    return patches + d * int(settings.classes) + sum(blocks)


def table_rows(distance: int) -> int:
    """Rows of a table of relative positions: distances in both directions, none, and the class token."""
    return 2 * distance + 2 if distance else 0


def relative_columns(along: int) -> int:
    """Different relative positions of a patch: its distances in rows, in columns, and the class token."""
    return 2 * (2 * along - 1) + 1
