"""Tests of paired differences: what many comparisons of a few seeds are worth. Pure functions of arrays.

Everything works on many comparisons at once: the last axis holds the differences of one comparison, one per seed, and
the axes before it are kept. An effect above 0 speaks for what is compared. Tests at a number of seeds that was fixed
before are those of Student's t; tests that hold at any number of seeds, however often one looks, are e-values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Signs = npt.NDArray[np.int8]

ALPHA, LEVEL, POWER = 0.05, 0.95, 0.8
"""The error rate of a study's verdicts, the level of every interval, and the power that is planned for."""
PRIMARY, OTHERS = 0.04, 0.01
"""How a study with primary contrasts divides its error rate."""
ENUMERATED, FLIPS = 16, 100_000
"""Up to so many seeds all flips of signs are tried; beyond, so many random ones, always the same."""
PRIOR = 1.0
"""The variance of standardised effects that e-values weigh: effects of about one deviation are found soonest."""
_FLAT = 1e-9
"""A deviation below this share of the mean is rounding, not variation."""


@dataclass(frozen=True)
class Sample:
    """Mean, sample deviation (nan for one seed) and number of the differences of one or of many comparisons."""

    mean: Numbers
    deviation: Numbers
    n: Numbers

    @classmethod
    def of(cls, differences: npt.ArrayLike) -> Sample:
        """The sample of the differences along the last axis."""
        values = np.asarray(differences, dtype=float)
        n = values.shape[-1]
        # Rounded: 0.1 + 0.2 - 0.3 is 0 despite binary rounding, and 0 decides nothing.
        mean = values.mean(axis=-1).round(12)
        deviation = values.std(axis=-1, ddof=1) if n > 1 else np.full(mean.shape, np.nan)
        return cls(mean, np.asarray(deviation), np.full(mean.shape, float(n)))

    @property
    def flat(self) -> npt.NDArray[np.bool_]:
        """Where all differences are equal, and so have no deviation to measure the mean by."""
        return np.asarray(self.deviation <= np.maximum(1e-12, _FLAT * np.abs(self.mean)))

    @property
    def error(self) -> Numbers:
        """The standard error of the mean; nan for one seed."""
        return np.asarray(self.deviation / np.sqrt(self.n))

    @property
    def t(self) -> Numbers:
        """Student's statistic; 0 where it is undefined."""
        usable = ~self.flat & (self.n > 1)
        return np.divide(self.mean, self.error, out=np.zeros(np.shape(self.mean)), where=usable)


@dataclass(frozen=True)
class Estimate:
    """A contrast of rows with the standard error and the degrees of freedom that all its data give."""

    mean: float
    error: float
    degrees: float

    def p(self) -> float:
        """Two-sided p of the t-test."""
        return float(2 * _special().stdtr(self.degrees, -abs(self.mean) / self.error))

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        width = float(_special().stdtrit(self.degrees, (1 + level) / 2)) * self.error
        return self.mean - width, self.mean + width

    def equivalence(self, margin: float) -> float:
        """p of two one-sided t-tests: small where the contrast lies between -margin and margin."""
        return float(_special().stdtr(self.degrees, (abs(self.mean) - margin) / self.error))

    def detectable(self, power: float = POWER, alpha: float = ALPHA) -> float:
        """The least contrast that is found with that power."""
        return self.error * float(sum(_special().stdtrit(self.degrees, one) for one in (1 - alpha / 2, power)))


@dataclass(frozen=True)
class Block:
    """Rows of one method over the same seeds, with the weights that a contrast gives them (0 for most)."""

    values: Numbers
    """Rows × seeds."""
    weights: Numbers
    pooled: bool
    """Whether the rows have comparable deviations: their variances are averaged. Else each row has its own (Welch)."""
    drawn: Numbers | None = None
    """Sets of rows that a seed moves alike, as one that draws an edge does: a line of zeros and ones for each."""

    @cached_property
    def basis(self) -> Numbers:
        """Orthonormal directions in which seeds move the rows together; none without drawn edges."""
        if self.drawn is None or not len(self.drawn):
            return np.zeros((0, len(self.weights)))
        _, sizes, directions = np.linalg.svd(self.drawn, full_matrices=False)
        return np.asarray(directions[sizes > 1e-9])


def contrast(mean: float, blocks: Sequence[Block]) -> Estimate | None:
    """The contrast of rows of some blocks with its standard error; None where the rows do not vary.

    A mixed model of balanced data: what seeds add to rows that draw an edge is a random effect, measured by how the
    contrast of these rows varies over the seeds, all blocks together; of two rows it is the paired t-test. The rest is
    independent from block to block. Mean squares add up, with Satterthwaite's degrees of freedom.
    """
    n = blocks[0].values.shape[1]
    blocks = [block if block.pooled else _weighted(block) for block in blocks]
    together = np.zeros(n)
    for block in blocks:
        together += (block.basis @ block.weights) @ (block.basis @ block.values)
    parts = [part for block in blocks for part in _mean_squares(block)]
    parts += [(float(together.var(ddof=1)) / n, n - 1)] if np.abs(together).max() > 1e-12 else []
    variance = sum(part for part, _ in parts)
    if variance <= max([1e-24, *((_FLAT * float(np.abs(block.values).max())) ** 2 for block in blocks)]):
        return None
    return Estimate(mean, variance**0.5, variance**2 / sum(part**2 / degrees for part, degrees in parts))


def _weighted(block: Block) -> Block:
    """The block without the rows that have no weight."""
    kept = block.weights != 0
    drawn = None if block.drawn is None else block.drawn[:, kept]
    return Block(block.values[kept], block.weights[kept], block.pooled, drawn)


def _mean_squares(block: Block) -> Iterator[tuple[float, float]]:
    """What a block adds to the variance of a contrast beside drawn edges, each with its degrees of freedom."""
    basis, n = block.basis, block.values.shape[1]
    rest = block.weights - basis.T @ (basis @ block.weights)
    if not block.pooled:
        for weight, square in zip(rest, block.values.var(axis=1, ddof=1), strict=True):
            if abs(weight) > 1e-12:
                yield float(weight**2 * square / n), n - 1
    elif np.abs(rest).max() > 1e-12:
        square, degrees = residual(block)
        yield float((rest**2).sum()) * square / n, degrees


def residual(block: Block) -> tuple[float, float]:
    """The mean square of a pooled block's values beside drawn edges, and its degrees of freedom."""
    basis, (rows, n) = block.basis, block.values.shape
    moved = block.values - block.values.mean(axis=1, keepdims=True)
    moved -= basis.T @ (basis @ moved)
    degrees = (rows - len(basis)) * (n - 1)
    return (float((moved**2).sum()) / degrees if degrees else 0.0), degrees


def shared_variance(block: Block, place: int, edges: Sequence[Any]) -> tuple[float, float | None]:
    """The variance of what seeds add to the rows of one drawn set: by the edge, and by all else that they add.

    Differences between seeds of one edge tell the two apart; without such seeds the first is both, and the second None.
    """
    assert block.drawn is not None
    square, _ = residual(block)
    added = (np.linalg.pinv(block.drawn.T) @ block.values)[place]
    noise = square * float(np.linalg.inv(block.drawn @ block.drawn.T)[place, place])
    groups = [added[[edge == one for edge in edges]] for one in dict.fromkeys(edges)]
    n, count = len(added), len(groups)
    if count in (1, n):
        return float(added.var(ddof=1)) - noise, None
    within = sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / (n - count)
    between = sum(len(group) * float((group.mean() - added.mean()) ** 2) for group in groups) / (count - 1)
    each = (n - sum(len(group) ** 2 for group in groups) / n) / (count - 1)
    return (between - within) / each, within - noise


# A number of seeds that was fixed before.


def t_test(sample: Sample) -> Numbers:
    """Two-sided p of the paired t-test. 1 for one seed; where all differences are equal, the sign-flip test's."""
    p = 2 * _special().stdtr(np.maximum(sample.n - 1, 1), -np.abs(sample.t))
    return _or_flat(sample, p, np.where(sample.mean == 0, 1.0, least_p(sample.n)))


def t_interval(sample: Sample, level: float = LEVEL) -> tuple[Numbers, Numbers]:
    """The interval of the mean that Student's t gives; unbounded for one seed."""
    quantile = _special().stdtrit(np.maximum(sample.n - 1, 1), (1 + level) / 2)
    return _around(sample, quantile)


def equivalence(sample: Sample, margin: npt.ArrayLike) -> Numbers:
    """p of two one-sided t-tests: small where the mean lies between -margin and margin."""
    inside = np.asarray(margin) - np.abs(sample.mean)
    usable = ~sample.flat & (sample.n > 1)
    t = np.divide(inside, sample.error, out=np.zeros(np.shape(inside)), where=usable)
    p = _special().stdtr(np.maximum(sample.n - 1, 1), -t)
    return _or_flat(sample, p, np.where(inside > 0, least_p(sample.n) / 2, 1.0))


def sign_flips(differences: npt.ArrayLike) -> Numbers:
    """Two-sided p of the sign-flip test, which needs symmetric differences and no normal ones.

    All flips are enumerated up to `ENUMERATED` seeds; beyond, `FLIPS` random ones are tried, always the same.
    """
    values = np.asarray(differences, dtype=float)
    n = values.shape[-1]
    flat = values.reshape(-1, n)
    observed = np.abs(flat.sum(axis=1)) * (1 - 1e-12)
    signs = _signs(n)
    reached = np.zeros(len(flat))
    for some in np.array_split(signs, max(1, len(signs) // 8192)):
        reached += (np.abs(flat @ some.T.astype(float)) >= observed[:, None]).sum(axis=1)
    exact = n <= ENUMERATED
    p = reached / len(signs) if exact else (1 + reached) / (1 + len(signs))
    return np.asarray(p.reshape(values.shape[:-1]))


def least_p(n: npt.ArrayLike) -> Numbers:
    """The least two-sided p that so many seeds allow without assuming a distribution: 2 of 2ⁿ flips."""
    return np.minimum(1.0, 2.0 ** (1 - np.asarray(n, dtype=float)))


def holm(p: npt.ArrayLike, true: int | None = None) -> Numbers:
    """p-values adjusted by Holm's rule for all hypotheses along the last axis.

    `true` is how many of them can be true at once, if not all (Shaffer's rule).
    """
    values = np.asarray(p, dtype=float)
    order = np.argsort(values, axis=-1, kind="stable")
    factors = np.minimum(np.arange(values.shape[-1], 0, -1), values.shape[-1] if true is None else true)
    raised = np.maximum.accumulate(np.take_along_axis(values, order, -1) * factors, axis=-1)
    adjusted = np.empty_like(values)
    np.put_along_axis(adjusted, order, np.minimum(1.0, raised), -1)
    return adjusted


def decided(sample: Sample, p: npt.ArrayLike, alpha: float = ALPHA) -> Signs:
    """1 where a mean above 0 is decided by its p, -1 where one below 0 is, else 0."""
    return np.where(np.asarray(p) <= alpha, np.sign(sample.mean), 0).astype(np.int8)


# Planning.


def detectable(sample: Sample, power: float = POWER, alpha: float = ALPHA) -> Numbers:
    """The least mean difference that so many seeds with this deviation find with that power; nan for one seed."""
    degrees = np.maximum(sample.n - 1, 1)
    quantiles = _special().stdtrit(degrees, 1 - alpha / 2) + _special().stdtrit(degrees, power)
    return np.asarray(np.where(sample.n > 1, quantiles * sample.error, np.nan))


def t_power(effect: float, n: int, alpha: float = ALPHA, each: float = 1.0) -> float:
    """The probability that n seeds decide an effect, in deviations of the differences, by a two-sided t-test.

    `each` is how many degrees of freedom a seed gives after the first: more than 1 where rows share a variance.
    """
    if n < 2:
        return 0.0
    special = _special()
    degrees = each * (n - 1)
    # Averaged over what the deviation may come out as: the noncentral t of scipy fails at small error rates.
    limit = special.stdtrit(degrees, 1 - alpha / 2) * _deviations(degrees)
    centre = abs(effect) * n**0.5
    return float(np.mean(special.ndtr(centre - limit) + special.ndtr(-centre - limit)))


def seeds_needed(
    effect: float, power: float = POWER, alpha: float = ALPHA, most: int = 100_000, each: float = 1.0
) -> int | None:
    """The least number of seeds that decide an effect, in deviations, with that power; None if `most` are too few."""
    if not effect or t_power(effect, most, alpha, each) < power:
        return None
    low, high = 1, 2
    while t_power(effect, high, alpha, each) < power:
        low, high = high, min(most, 2 * high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if t_power(effect, middle, alpha, each) >= power else (middle, high)
    return high


def probability_of_improvement(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """How often a value of the first is above one of the second, over all pairs; equal values count half."""
    one, other = np.asarray(first, dtype=float)[:, None], np.asarray(second, dtype=float)[None, :]
    return float(np.mean(one > other) + np.mean(one == other) / 2)


# Any number of seeds, looked at as often as one likes.


def log_e_value(sample: Sample, prior: float = PRIOR) -> Numbers:
    """The logarithm of the e-value of a t-test, with normal standardised effects of this variance as alternatives.

    Where there is no effect, e-values ever reach 1/α in at most a share α of comparisons, however often one looks.
    Where all differences are equal, the e-value is at most that of n equal signs.
    """
    degrees, weight = np.maximum(sample.n - 1, 1), 1 + sample.n * prior
    square = sample.t**2 / degrees
    found = -np.log(weight) / 2 - (degrees + 1) / 2 * (np.log1p(square / weight) - np.log1p(square))
    equal = np.minimum((sample.n - 1) / 2 * np.log(weight), (sample.n - 1) * np.log(2))
    return _or_flat(sample, found, np.where(sample.mean == 0, -np.log(weight) / 2, equal), one=0.0)


def looks(differences: npt.ArrayLike) -> Sample:
    """The samples of the first two differences along the last axis, of the first three, and so on."""
    values = np.asarray(differences, dtype=float)
    n = np.arange(1.0, values.shape[-1] + 1)
    # Of values around 0 the sum of squares loses no digits.
    centre = values.mean(axis=-1, keepdims=True) if values.shape[-1] else 0.0
    moved = values - centre
    mean = moved.cumsum(axis=-1) / n
    squares = np.maximum((moved**2).cumsum(axis=-1) - n * mean**2, 0.0)
    deviation = np.sqrt(squares[..., 1:] / (n[1:] - 1))
    return Sample((mean + centre)[..., 1:].round(12), deviation, np.broadcast_to(n[1:], deviation.shape))


def anytime_p(sample: Sample) -> Numbers:
    """p at each look: 1 over the e-value. The least p of all looks is one, too, whenever and why one stops.

    So Holm's rule holds for them as it does for others, whatever was waited for.
    """
    return np.asarray(np.exp(-np.maximum(log_e_value(sample), 0.0)))


def confidence_sequence(
    sample: Sample, m: int = 1, alpha: float = ALPHA, prior: float = PRIOR
) -> tuple[Numbers, Numbers]:
    """The interval that goes with the e-values: it covers the mean at all numbers of seeds together.

    Unbounded while there are too few seeds for any decision.
    """
    weight = 1 + sample.n * prior
    root = np.exp((np.log(weight) - 2 * np.log(alpha / m)) / sample.n)
    bounded = root < weight
    square = (sample.n - 1) * (root - 1) / np.where(bounded, 1 - root / weight, 1.0)
    return _around(sample, np.where(bounded, np.sqrt(np.maximum(square, 0.0)), np.inf))


def anytime_equivalence(sample: Sample, margin: npt.ArrayLike) -> Numbers:
    """The same for a mean between -margin and margin: small where the confidence sequence lies within."""
    limits = np.asarray(margin, dtype=float)
    sides = [anytime_p(Sample(sample.mean + side, sample.deviation, sample.n)) for side in (limits, -limits)]
    return np.asarray(np.where(np.abs(sample.mean) < limits, np.maximum(*sides), 1.0))


def first_decision(m: int, alpha: float = ALPHA, prior: float = PRIOR) -> int:
    """The least number of seeds at which the first of m comparisons can be decided by e-values."""
    n = 2
    while (n - 1) / 2 * np.log(1 + n * prior) < np.log(m / alpha):
        n += 1
    return n


# Deviations over seeds.


@dataclass(frozen=True)
class SpreadTest:
    """The difference of two rows' deviations over the same seeds, its interval, and the p that both are equal."""

    difference: Numbers
    low: Numbers
    high: Numbers
    p: Numbers


def pitman_morgan(first: npt.ArrayLike, second: npt.ArrayLike, level: float = LEVEL) -> SpreadTest:
    """Compare paired deviations by the test of Pitman and Morgan: sums and differences are uncorrelated if equal.

    The interval is that of the ratio of deviations, in units of the second deviation. With fewer than three seeds, or
    where a row does not vary, p is 1 and the interval unbounded.
    """
    one, other = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    n = one.shape[-1]
    if n < 2:
        none = np.zeros(one.shape[:-1])
        return SpreadTest(none, none - np.inf, none + np.inf, none + 1)
    spreads = [values.std(axis=-1, ddof=1) for values in (one, other)]
    difference = np.asarray((spreads[0] - spreads[1]).round(12))
    usable = np.asarray((spreads[0] > 1e-12) & (spreads[1] > 1e-12) & (n > 2))
    safe = [np.where(usable, spread, 1.0) for spread in spreads]
    products = (one - one.mean(axis=-1, keepdims=True)) * (other - other.mean(axis=-1, keepdims=True))
    shared = np.clip(products.sum(axis=-1) / (n - 1) / safe[0] / safe[1], -1, 1)
    ratio = safe[0] / safe[1]
    unshared = np.maximum((1 - shared**2), 1e-15)
    degrees = max(1, n - 2)
    t = (ratio**2 - 1) * np.sqrt(degrees) / (2 * ratio * np.sqrt(unshared))
    p = np.where(usable, 2 * _special().stdtr(degrees, -np.abs(t)), 1.0)
    centre = 1 + 2 * unshared * _special().stdtrit(degrees, (1 + level) / 2) ** 2 / degrees
    width = np.sqrt(centre**2 - 1)
    low, high = (np.asarray(spreads[1] * (ratio * np.sqrt(part) - 1)) for part in (centre - width, centre + width))
    return SpreadTest(difference, np.where(usable, low, -np.inf), np.where(usable, high, np.inf), p)


def changes(first: npt.ArrayLike, second: npt.ArrayLike) -> Numbers:
    """Log ratios of how far two rows change from one seed to the next, over pairs of seeds that do not overlap.

    Their mean estimates the log ratio of deviations. They are differences like others, so that e-values judge
    deviations, too. Empty where a row does not change: a ratio to 0 says nothing.
    """
    one, other = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    pairs = one.shape[-1] // 2
    steps = [np.abs(values[..., 1 : 2 * pairs : 2] - values[..., 0 : 2 * pairs : 2]) for values in (one, other)]
    if any((step <= 1e-12).any() for step in steps):
        return np.zeros((*one.shape[:-1], 0))
    return np.asarray(np.log(steps[0]) - np.log(steps[1]))


def _around(sample: Sample, quantile: Numbers) -> tuple[Numbers, Numbers]:
    """The interval of so many standard errors to either side of the mean; unbounded for one seed."""
    with np.errstate(invalid="ignore"):
        width = np.where((sample.n > 1) & np.isfinite(quantile), quantile * sample.error, np.inf)
    return sample.mean - width, sample.mean + width


def _or_flat(sample: Sample, usual: npt.ArrayLike, flat: npt.ArrayLike, one: float = 1.0) -> Numbers:
    """The usual value, that of equal differences, or that of a single seed."""
    return np.asarray(np.where(sample.n > 1, np.where(sample.flat, flat, usual), one))


@lru_cache(maxsize=4096)
def _deviations(degrees: float) -> Numbers:
    """Equally likely values of a deviation with so many degrees of freedom, in units of the true one."""
    return np.asarray(np.sqrt(2 * _special().gammaincinv(degrees / 2, (np.arange(1000) + 0.5) / 1000) / degrees))


@lru_cache(maxsize=32)
def _signs(n: int) -> npt.NDArray[np.int8]:
    """One set of signs per row. The opposite of a set gives the same, so half of them are enough to enumerate."""
    if n <= ENUMERATED:
        numbers = np.arange(2 ** max(0, n - 1))
        return (1 - 2 * (numbers[:, None] >> np.arange(n) & 1)).astype(np.int8)
    return np.random.default_rng(0).choice(np.array([-1, 1], dtype=np.int8), (FLIPS, n))


def _special() -> Any:
    """The distributions, imported when they are needed: a quarter of a second."""
    from scipy import special

    return special
