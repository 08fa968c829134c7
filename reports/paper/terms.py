"""Terms of the paper and of its measures, as `harness explain` shows them. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TERMS: Mapping[tuple[str, ...], tuple[str, str]] = {
    ("CaLR", "complexity-aware learning rate"): (
        "complexity-aware learning rate: the learning rate of a step decays by a power of the remaining training. The "
        "power falls with the number of parameters of the sampled subnet: large subnets converge slowly, so their rate "
        "stays high for longer (Eq. 3 to 6).",
        "schedule.name=calr",
    ),
    ("MS", "momentum separation"): (
        "momentum separation: subnets are clustered, by default by the operation at one edge, and each cluster has a "
        "momentum buffer of its own, so that updates do not mix gradients of dissimilar subnets (Eq. 7 and 8).",
        "clusters.name=operation",
    ),
    ("γ", "gamma"): ("the decay ratio of CaLR: the power for one subnet, a function of its complexity (Eq. 4).", ""),
    ("γ′", "γ'", "gamma′"): ("the largest decay ratio of CaLR; 1/γ′ is the smallest.", "schedule.gamma_prime=4"),
    ("τ", "tau", "kendall"): (
        "Kendall's τ (τ-b) between predicted and true accuracy over the selected architectures: 1 for the same order, "
        "about 0 for a random one. The metric is kendall_tau.",
        "",
    ),
    ("CB",): (
        "complexity bias: of the wrongly ordered pairs among the best 30 % of the architectures, the share in which "
        "the larger one is ranked too low. The metric is complexity_bias; complexity_bias_z compares it with its null.",
        "",
    ),
    ("C³", "C3"): (
        "complexity-convergence correlation: Kendall's τ between complexity and the ratio of predicted to true "
        "accuracy. The metric is complexity_convergence.",
        "",
    ),
    ("MGCS",): (
        "mean gradient cosine similarity: of the first layer's gradients of a base subnet and of subnets that differ "
        "from it in some operations (Table I).",
        "",
    ),
    ("top-1", "top1"): ("the true accuracy of the architecture that is ranked best. The metric is top1_accuracy.", ""),
    ("supernet",): ("a network that holds all architectures of a space as paths over shared weights.", ""),
    ("subnet", "path"): ("one architecture as a part of the supernet, with the supernet's weights.", ""),
    ("trial",): ("a configuration with a seed: one entry of a study. However many tables show it, it runs once.", ""),
}
"""By its spellings: the meaning, and the setting that turns it on."""


def meanings(word: str) -> Iterable[list[str]]:
    """The lines that explain a term; nothing for a word that is not one."""
    for spellings, (meaning, setting) in TERMS.items():
        if word.lower() in {one.lower() for one in spellings}:
            yield [f"{spellings[0]} (term)", meaning, *([f"use       with {setting}"] if setting else [])]
