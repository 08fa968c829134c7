"""Evolutionary search: the best architectures so far are mutated and crossed, generation by generation."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass

from harness.components.option import added
from harness.components.registries import SEARCHES
from harness.components.search import Found, Limits, Score, Search
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration, require

MUTATIONS = ("resample", "another")
ATTEMPTS = 10
"""Attempts per wanted child, after which a generation does with fewer."""
PAIRS = 50
"""Pairs of parents drawn for a crossover, after which one of them stands for the child."""


@SEARCHES.register("evolution")
@dataclass(frozen=True)
class Evolution(Search):
    """The search of SPOS: parents are the best of all generations, limits are hard, nothing is scored twice.

    The first generation is random. Every further one consists of mutations of parents, of crossovers of two parents,
    and of random architectures for the rest. Its defaults are those of the released code.
    """

    population: int = 50
    """Architectures per generation."""
    generations: int = 20
    """How many generations are scored, the random one included."""
    parents: int = 10
    """How many of the best so far have children."""
    mutations: int = 25
    """Children per generation that are mutated parents."""
    crossovers: int = 25
    """Children per generation that are crossed from two parents."""
    probability: float = 0.1
    """Of each decision of a mutated parent, to be drawn."""
    mutation: str = added("another")
    """What a mutated decision becomes: a uniform choice, which may be the present one, as in the released code (the
    paper does not say), or `another` one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("population", 1), ("generations", 1), ("parents", 1), ("mutations", 0), ("crossovers", 0)):
            if getattr(self, name) < least:
                raise InvalidConfiguration(f"search.{name} must be at least {least}, not {getattr(self, name)}")
        require(self.mutation in MUTATIONS, f"search.mutation is {self.mutation!r}; allowed: {', '.join(MUTATIONS)}")
        if not 0 < self.probability <= 1:
            raise InvalidConfiguration(f"search.probability must be above 0 and at most 1, not {self.probability}")
        if self.mutations + self.crossovers > self.population:
            raise InvalidConfiguration(
                f"search.mutations and search.crossovers are {self.mutations + self.crossovers} in all, more than "
                f"search.population, {self.population}"
            )
        if self.population * self.generations < self.keep:
            raise InvalidConfiguration(
                f"search.keep is {self.keep}, but only {self.population * self.generations} architectures are scored "
                "(search.population in each of search.generations)"
            )

    @property
    def rounds(self) -> int:
        return self.generations

    def find(self, score: Score, space: Space, rng: random.Random, limits: Limits) -> list[Found]:
        born: set[Architecture] = set()
        scored: list[Found] = []
        for generation in range(self.generations):
            # Of equal scores the earlier first: sorting keeps their order.
            best = [one.architecture for one in sorted(scored, key=lambda one: -one.score)[: self.parents]]
            children = self.children(best, space, rng, limits, born)
            if not children:
                break  # all architectures within the limits have been scored
            values = score(children, generation=generation)
            scored += [Found(child, value) for child, value in zip(children, values, strict=True)]
        return sorted(scored, key=lambda one: -one.score)[: self.keep]

    def children(
        self, parents: list[Architecture], space: Space, rng: random.Random, limits: Limits, born: set[Architecture]
    ) -> list[Architecture]:
        """The next generation: architectures within the limits that are not `born` yet, in their canonical form."""
        children: list[Architecture] = []

        def breed(wanted: int, make: Callable[[], Architecture]) -> None:
            enough = len(children) + wanted
            for _ in range(ATTEMPTS * wanted):
                if len(children) == enough:
                    return
                child = make()
                if space.canonical(child) not in born and limits.allow(child):
                    born.add(space.canonical(child))
                    children.append(child)

        if parents:
            change = space.mutate if self.mutation == "resample" else space.alter
            breed(self.mutations, lambda: change(rng.choice(parents), rng, self.probability))
            breed(self.crossovers, lambda: _crossed(parents, space, rng))
        # Limits that a random architecture hardly ever keeps end the search only at its start.
        with contextlib.suppress(*([InvalidConfiguration] if parents else [])):
            breed(self.population - len(children), lambda: limits.sample(rng))
        return children


def _crossed(parents: list[Architecture], space: Space, rng: random.Random) -> Architecture:
    """A child of two random parents that the space allows to be crossed."""
    for _ in range(PAIRS):
        one, other = rng.choice(parents), rng.choice(parents)
        if space.crossable(one, other):
            return space.crossover(one, other, rng)
    return one
