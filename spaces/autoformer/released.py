"""The names of the weights in released supernet files, and ours. No torch at import."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

NAMES = {
    "cls_token": "class_token",
    "pos_embed": "positions",
    "patch_embed_super.proj": "patches",
    "attn.qkv": "qkv",
    "attn.proj": "projection",
    "attn.rel_pos_embed_k.embeddings_table_v": "key_rows",
    "attn.rel_pos_embed_k.embeddings_table_h": "key_columns",
    "attn.rel_pos_embed_v.embeddings_table_v": "value_rows",
    "attn.rel_pos_embed_v.embeddings_table_h": "value_columns",
    "attn_layer_norm": "attention_norm",
    "ffn_layer_norm": "mlp_norm",
}
"""Released names, without the block before them and `weight` or `bias` behind; those that are left out are equal."""

_PARTS = re.compile(r"(?P<block>blocks\.\d+\.)?(?P<what>.+?)(?P<kind>\.weight|\.bias)?")


def renamed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same weights by our names; names that are unknown stay as they are."""
    return {_renamed(name): value for name, value in weights.items()}


def _renamed(name: str) -> str:
    found = _PARTS.fullmatch(name)
    assert found is not None  # everything matches
    what = found["what"]
    return f"{found['block'] or ''}{NAMES.get(what, what)}{found['kind'] or ''}"
