"""A user's space that says all a space may say, a supernet with every ability, a search and methods that use them.

Networks and the search end their process with SIGKILL where a file of the folder asks for it, so that every stage is
killed in its middle, in no time.
"""

from __future__ import annotations

DIE = '''
import os
import signal
from pathlib import Path


def die(stage):
    """End the process at the call whose number stands in the file die-STAGE."""
    file = Path(f"die-{stage}")
    if file.exists():
        left = int(file.read_text()) - 1
        file.write_text(str(left))
        if not left:
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
'''

SPACE = (
    '''
"""Eight blocks of three kernels, each on or off, and a pooling: 17 decisions, 3,359,232 architectures."""

from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from harness.components.dataset import DataSet
from harness.components.registries import DATASETS, SPACES
from harness.components.space import Space
'''
    + DIE
    + '''

BLOCKS, KERNELS = 8, (1, 3, 5)


@DATASETS.register("few")
def few():
    """The first of the digits."""
    whole = DATASETS.get("digits")()
    return DataSet("few", 10, whole.train.head(40), whole.valid.head(50), whole.test.head(60), whole.mean, whole.std)


@dataclass(frozen=True)
class Blocks:
    """Settings of its own."""

    channels: int = 4
    slope: float = 0.5


def blocks_of(architecture):
    """(kernel, on) of every block."""
    return tuple(zip(architecture[1::2], architecture[2::2]))


@SPACES.register("able")
class Able(Space):
    """Neighbouring blocks are on and off together, where the space itself draws; off, their kernels do not matter."""

    name = "able"
    choices = (2, *(len(KERNELS), 2) * BLOCKS)
    layers = tuple((2 * block + 1, 2 * block + 2) for block in range(BLOCKS))
    complexity_counts = ("parameters",)
    Network = Blocks

    def parse(self, text):
        return self.check(tuple(map(int, text)))

    def format(self, architecture):
        return "".join(map(str, self.check(architecture)))

    def canonical(self, architecture):
        blocks = blocks_of(self.check(architecture))
        return (architecture[0], *(choice for kernel, on in blocks for choice in (kernel * on, on)))

    def paired(self, architecture):
        """The same, with the second block of every pair on where the first is."""
        blocks = blocks_of(architecture)
        pairs = ((kernel, blocks[place // 2 * 2][1]) for place, (kernel, _) in enumerate(blocks))
        return (architecture[0], *(choice for pair in pairs for choice in pair))

    def sample(self, rng, fixed=None):
        drawn = super().sample(rng, fixed)
        return drawn if fixed else self.paired(drawn)

    def mutate(self, architecture, rng, probability):
        """The blocks of a pair change together."""
        changed = list(super().mutate(architecture, rng, probability))
        for first in range(2, len(changed), 4):
            changed[first + 2] = architecture[first + 2] ^ changed[first] ^ architecture[first]
        return tuple(changed)

    def crossover(self, one, other, rng):
        cut = 1 + 4 * rng.randrange(BLOCKS // 2 + 1)
        return (*one[:cut], *other[cut:])

    def complexity(self, architecture, count="parameters", settings=None):
        settings = settings or Blocks()
        inputs, classes = getattr(settings, "image_channels", 1), getattr(settings, "classes", 10)
        ends = 10 * inputs - inputs + 1 + classes + classes / settings.channels
        blocks = blocks_of(self.check(architecture))
        return round(settings.channels * (ends + sum((KERNELS[kernel] ** 2 + 2) * on for kernel, on in blocks)))

    def extremes(self, count="parameters"):
        smallest, largest = (0,) * len(self.choices), (0, *(2, 1) * BLOCKS)
        return self.complexity(smallest), smallest, self.complexity(largest), largest

    def parameter_groups(self, network):
        """A stem that stays as it is, and no decay of the normalisation."""
        stem = list(network.stem.parameters())
        plain = [one for one in network.parameters() if one.ndim == 1 and all(one is not other for other in stem)]
        chosen = {id(one) for one in (*stem, *plain)}
        others = [one for one in network.parameters() if id(one) not in chosen]
        return [{"params": others}, {"params": plain, "weight_decay_factor": 0.0},
                {"params": stem, "learning_rate_factor": 0.0}]

    def supernet(self, settings):
        return Net(settings, [range(len(KERNELS))] * BLOCKS)

    def standalone(self, architecture, settings):
        return Net(settings, [(kernel,) * on for kernel, on in blocks_of(architecture)], architecture)


class Swift(torch.autograd.Function):
    """A fast way that cannot be differentiated twice."""

    @staticmethod
    def forward(context, x):
        context.save_for_backward(y := torch.tanh(x))
        return y

    @staticmethod
    @once_differentiable
    def backward(context, gradient):
        return gradient * (1 - context.saved_tensors[0] ** 2)


class Net(nn.Module):
    def __init__(self, settings, kernels, own=None):
        super().__init__()
        channels = settings.channels
        self.own, self.slope, self.tanh = own, settings.slope, Swift.apply
        self.stem = nn.Conv2d(settings.image_channels, channels, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({str(choice): self.operation(channels, KERNELS[choice]) for choice in own}) for own in kernels
        )
        self.head = nn.Linear(channels, settings.classes)

    def operation(self, channels, kernel):
        convolution = nn.Conv2d(channels, channels, kernel, padding=kernel // 2, groups=channels, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(channels))

    def forward(self, x, architecture=None):
        die(("retrain" if self.own else "train") if self.training else "test" if self.own else "rank")
        return self.behind(self.begun(x), self.own or architecture)

    def begun(self, x):
        return torch.relu(self.stem(x))

    def behind(self, x, architecture):
        for block, (kernel, on) in zip(self.blocks, blocks_of(architecture)):
            if on:
                x = x + self.slope * self.tanh(block[str(kernel)](x))
        return self.head(x.amax((2, 3)) if architecture[0] else x.mean((2, 3)))

    def evaluation(self, batches):
        """The stem does not depend on the architecture."""
        begun = [self.begun(batch) for batch in batches]

        def logits(number, architecture):
            die("rank")
            return self.behind(begun[number], architecture)

        return logits

    @contextmanager
    def calibrated(self, architecture, batches):
        norms = [one for one in self.modules() if isinstance(one, nn.BatchNorm2d)]
        before = [{name: value.clone() for name, value in one.state_dict().items()} for one in norms]
        for one in norms:
            one.reset_running_stats()
            one.momentum = None
            one.train()
        for batch in batches:
            self.behind(self.begun(batch), architecture)
        for one in norms:
            one.eval()
        yield
        for one, state in zip(norms, before):
            one.load_state_dict(state)
            one.momentum = 0.1

    def forward_mixed(self, x, weights):
        if self.training:
            die("train")
        x = self.begun(x)
        for number, block in enumerate(self.blocks):
            kernels, on = weights[2 * number + 1 : 2 * number + 3]
            mixed = sum(weight * self.tanh(block[str(choice)](x)) for choice, weight in enumerate(kernels))
            x = x + self.slope * on[1] * mixed
        return weights[0][0] * self.head(x.mean((2, 3))) + weights[0][1] * self.head(x.amax((2, 3)))

    def forward_gated(self, x, architecture, gates):
        sizes = [2, *[len(KERNELS), 2] * BLOCKS]
        return self.forward_mixed(x, [g * torch.eye(n)[c] for g, n, c in zip(gates, sizes, architecture)])

    @contextmanager
    def twice_differentiable(self):
        self.tanh = torch.tanh
        yield
        self.tanh = Swift.apply
'''
)

SEARCH = (
    """
from dataclasses import dataclass

from harness.components.registries import SEARCHES
from harness.components.search import Search, best_of
"""
    + DIE
    + '''

@SEARCHES.register("evolving")
@dataclass(frozen=True)
class Evolving(Search):
    """The better half has children: by the space's crossover, then by its mutation."""

    population: int = 6
    generations: int = 3

    def find(self, score, space, rng, limits):
        known = {space.canonical(one): one for one in limits.distinct(self.population, rng)}
        for _ in range(self.generations):
            scores = dict(zip(known, score(list(known.values()), batches=1)))
            die("search")
            best = [known[one] for one in sorted(scores, key=lambda one: -scores[one])[: self.population // 2]]
            for _ in range(self.population):
                child = space.mutate(space.crossover(*rng.sample(best, 2), rng), rng, probability=0.1)
                if limits.allow(child):
                    known.setdefault(space.canonical(child), child)
        return best_of(score, list(known.values()), self.keep, batches=1)
'''
)

MIXING = '''
import torch
from torch.nn import functional

from harness.components.method import Method, Step
from harness.components.registries import METHODS
from harness.components.supernet import Mixture, TwiceDifferentiable, offered


@METHODS.register("mixing")
class Mixing(Method):
    """Learns how choices are mixed, by validation batches through the mixture, and weights through the same."""

    def begin(self, training):
        offered(training.network, Mixture, "mixing")
        alphas = torch.nn.ParameterList(1e-3 * torch.randn(count) for count in training.space.choices)
        training.modules["alphas"] = alphas
        training.modules["optimiser"] = torch.optim.Adam(alphas.parameters(), lr=0.05, betas=(0.5, 0.999))

    def mixed(self, training, batch):
        weights = [one.softmax(0) for one in training.modules["alphas"]]
        return functional.cross_entropy(training.network.forward_mixed(batch.images, weights), batch.labels)

    def validated(self, training, batch, valid):
        """Add the gradients of the architecture parameters."""
        training.backward(self.mixed(training, valid))

    def train_step(self, training, batch, step):
        valid = training.validation.batch(step)
        training.clear_gradients()
        self.validated(training, batch, valid)
        training.update_own("optimiser")
        training.clear_gradients()
        loss = self.mixed(training, batch)
        training.backward(loss)
        training.update(self.found(training), step)
        for one in training.modules["alphas"]:
            one.grad = None  # those of the training batch
        return Step(loss.detach()[None], passes=2, images=len(batch.labels) + len(valid.labels))

    def found(self, training):
        return [tuple(int(one.argmax()) for one in training.modules["alphas"])]


class Mixed(torch.nn.Module):
    """The mixture as a forward, for a call with other weights."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, images, weights):
        return self.network.forward_mixed(images, weights)


@METHODS.register("mixing-twice")
class MixingTwice(Mixing):
    """The same, by the validation loss after a step of the weights, through which its gradient goes."""

    def validated(self, training, batch, valid):
        network = offered(training.network, TwiceDifferentiable, "mixing-twice")
        with network.twice_differentiable():
            names, values = zip(*network.named_parameters())
            gradients = torch.autograd.grad(self.mixed(training, batch), values, create_graph=True)
            stepped = {f"network.{name}": one - 0.1 * d for name, one, d in zip(names, values, gradients)}
            weights = [one.softmax(0) for one in training.modules["alphas"]]
            logits = torch.func.functional_call(Mixed(network), stepped, (valid.images, weights))
            training.backward(functional.cross_entropy(logits, valid.labels))
'''

STUDY = '''
"""Train, rank with calibrated statistics, search by evolution, retrain; and methods that find by themselves."""

from harness.study import Column, Row, Study

common = {"dataset": "few", "benchmark": None, "clusters": "first-layer", "schedule": "calr", "train.epochs": 2,
          "train.batch_size": 16, "rank.images": 32, "rank.batch_size": 16, "rank.candidates": 4,
          "rank.calibration": 1}
search = {"search": {"name": "evolving", "keep": 2, "limits": {"parameters": [300, 700]}}}
again = {"retrain.epochs": 2, "retrain.batch_size": 20, "retrain.network.channels": 6}
own = {**common, "clusters": "none", "schedule": "cosine"}
rows = [
    Row({"Found by": "evolution"}, common | search | again),
    Row({"Found by": "mixture"}, own | again | {"method.name": "mixing"}),
    Row({"Found by": "mixture, twice"}, own | again | {"method.name": "mixing-twice"}),
]
study = Study("able", "All abilities", rows, [Column("Retrained", "retrained_accuracy", digits=2)], space="able")
'''

FILES = {
    "spaces/able.py": SPACE,
    "methods/evolving.py": SEARCH,
    "methods/mixing.py": MIXING,
    "studies/able.py": STUDY,
}
