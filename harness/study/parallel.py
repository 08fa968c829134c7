"""Whether several processes can train a configuration together, decided before anything runs. Imports no torch."""

from __future__ import annotations

from harness.components.method import Method, reason_against_ranks
from harness.errors import InvalidConfiguration, require
from harness.study.configuration import COMPONENTS, RunConfig


def check_ranks(config: RunConfig, ranks: int) -> None:
    """Raise `InvalidConfiguration` with the reason unless that many processes compute what one process computes."""
    require(ranks >= 1, f"--ranks must be at least 1, not {ranks}")
    if ranks == 1:
        return
    if config.retrain is not None:
        batch, group, where = config.retrain.batch_size, config.retrain.bn_group, "retrain"
    else:
        batch, group, where = config.train.batch_size, config.train.bn_group, "train"
        method: Method = config.method.build(COMPONENTS["method"], "method")
        if reason := reason_against_ranks(method):
            raise InvalidConfiguration(f"method {config.method.name} cannot train with --ranks {ranks}: {reason}")
    require(batch >= ranks, f"{where}.batch_size is {batch}: too few images for --ranks {ranks}")
    groups = batch // (group or batch)
    if groups % ranks and ranks % groups:
        raise InvalidConfiguration(
            f"{where}.bn_group is {group}: a batch of {batch} images has {groups} groups of batch normalisation, "
            f"which --ranks {ranks} cannot share. A rank has a whole number of groups, or a group a whole number of "
            f"ranks: use --ranks {groups}, or {where}.bn_group={batch // ranks if not batch % ranks else 'null'}"
        )


def check_last_batch(count: int, batch_size: int, groups: int, ranks: int, split: str) -> None:
    """Raise `InvalidConfiguration` if a rank, or a group of batch normalisation, has no image of the last batch."""
    least, last = max(groups, ranks), count % batch_size or batch_size
    if last < least:
        what = f"{groups} groups of batch normalisation" if groups >= ranks else f"{ranks} ranks"
        raise InvalidConfiguration(
            f"the last batch of {split} has {last} of {count} images, too few for {what}: "
            "choose another train.batch_size"
        )
