"""A user's optimisers, methods, samplers and schedules that use the hooks of the training step; a study of them all.

One row per toy, and one per method of ours with steps or state of its own. Every row's schedule kills its own process
half way while a file says so.
"""

from __future__ import annotations

from tests import able
from tests.conftest import TOY
from tests.test_documents import example_files

MORTAL = '''
import math, os, signal
from dataclasses import dataclass
from harness.components.registries import SCHEDULES
from harness.components.schedule import Schedule

@SCHEDULES.register("mortal")
@dataclass(frozen=True)
class Mortal(Schedule):
    """Half a cosine wave; half way it ends its process while there is a file `armed`."""

    def bind(self, space):
        def factor(path, progress):
            if progress > 0.5 and os.path.exists("armed"):
                os.kill(os.getpid(), signal.SIGKILL)
            return 0.5 * (1 + math.cos(math.pi * progress))
        return factor
'''

SIGN = '''
from dataclasses import dataclass
import torch
from harness.components.optimiser import Optimiser
from harness.components.registries import OPTIMISERS

@OPTIMISERS.register("sign")
@dataclass(frozen=True)
class Sign(Optimiser):
    """The sign of a running mean of gradients."""

    beta: float = 0.9

    def make(self, groups):
        return SignDescent(groups, dict(lr=self.learning_rate, weight_decay=self.weight_decay, beta=self.beta))

class SignDescent(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    mean = state.setdefault("exp_avg", torch.zeros_like(parameter))
                    mean.lerp_(parameter.grad, 1 - group["beta"])
                    parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * mean.sign())
'''

OWN = '''
from dataclasses import dataclass
import torch
from harness.components.method import Method, Part, Step
from harness.components.registries import METHODS

@METHODS.register("learnt")
class Learnt(Method):
    """Learns by validation loss which choices to train: one vector per decision, an optimiser of its own."""

    def begin(self, training):
        alphas = torch.nn.ParameterList(torch.randn(count) for count in training.space.choices)
        training.modules["alphas"] = alphas
        training.modules["optimiser"] = torch.optim.Adam(alphas.parameters(), lr=0.1)

    def begin_epoch(self, training, epoch):
        training.memory["epochs"] = training.memory.get("epochs", []) + [epoch]

    def train_step(self, training, batch, step):
        alphas = training.modules["alphas"]
        path = tuple(training.rng.choices(range(len(one)), one.softmax(0).tolist())[0] for one in alphas)
        with torch.no_grad():
            loss = training.loss(training.validation.batch(step), path)
        likelihood = sum(one.log_softmax(0)[choice] for one, choice in zip(alphas, path))
        training.backward(likelihood * loss)
        training.update_own("optimiser", clip=1.0)
        return Step(training.descend(batch, [path], step), passes=2, images=2 * len(batch.labels))

    def score(self, trainings, architecture):
        alphas = trainings[0].modules["alphas"]
        return sum(float(one.log_softmax(0)[choice]) for one, choice in zip(alphas, architecture))

@METHODS.register("distilling")
class Distilling(Method):
    """The largest path learns from labels, a drawn one from the largest."""

    def paths_per_step(self, space):
        return 2

    def train_step(self, training, batch, step):
        teacher, [student] = (2, 1, 1), training.draw(1)
        training.clear_gradients()
        losses = [training.loss(batch, teacher)]
        training.backward(losses[0])
        with torch.no_grad():
            target = training.logits(batch, teacher).softmax(1)
        losses.append(training.loss(batch, student, target))
        training.backward(losses[1])
        training.update([teacher, student], step)
        return torch.stack(losses).detach()

@METHODS.register("resampling")
class Resampling(Method):
    """The order of the data depends on the training."""

    def paths(self, training):
        return training.draw(1)

    def data_order(self, training, epoch):
        first = int(next(training.network.parameters()).abs().sum() * 1000) % 40
        return [(first + place) % 40 for place in range(40)]

@METHODS.register("dividing")
class Dividing(Method):
    """After half the epochs the first decision splits into one choice and two; the latter split again."""

    def paths(self, training):
        return training.draw(1)

    def divide(self, training, epochs):
        if epochs == 2 and not training.part.allowed:
            return Part({0: 1}), Part({}, {0: (0, 2)})
        if epochs == 3 and training.part.allowed.keys() == {0}:
            return Part({}, {0: (0, 2), 1: (0,)}), Part({}, {0: (0, 2), 1: (1,)})

@METHODS.register("unfair")
class Unfair(Method):
    """Trains two paths and says one."""

    def paths(self, training):
        return training.draw(2)

@METHODS.register("empty")
class Empty(Method):
    """Defines nothing."""
'''

CURIOUS = '''
from dataclasses import dataclass
import torch
from harness.components.registries import SAMPLERS
from harness.components.sampler import PathSource, Sampler

@SAMPLERS.register("curious")
@dataclass(frozen=True)
class Curious(Sampler):
    """Prefers choices whose steps had large gradients."""

    def bind(self, space, fixed):
        return CuriousSource(space, fixed)

class CuriousSource(PathSource):
    def __init__(self, space, fixed):
        self.space, self.fixed, self.norms = space, fixed, {}

    def draw(self, rng, training):
        paths = [self.space.sample(rng, self.fixed) for _ in range(1 if training.step < 2 else 4)]
        return max(paths, key=lambda path: self.norms.get(str(path), 0.0))

    def learn(self, training, paths, losses):
        there = [parameter.grad for parameter in training.network.parameters() if parameter.grad is not None]
        for path in paths:
            self.norms[str(path)] = float(sum(gradient.norm() for gradient in there))

    def state(self):
        return self.norms

    def restore(self, state):
        self.norms = dict(state)

@SAMPLERS.register("asking")
class Asking(Sampler):
    """The better of two paths by its loss on validation images: two forward passes to choose."""

    def bind(self, space, fixed):
        return AskingSource(space, fixed)

class AskingSource(PathSource):
    def __init__(self, space, fixed):
        self.space, self.fixed = space, fixed

    def draw(self, rng, training):
        batch = training.validation.batch(training.step)
        with training.sampling(passes=2, images=2 * len(batch.labels)), torch.no_grad():
            paths = [self.space.sample(rng, self.fixed) for _ in range(2)]
            return min(paths, key=lambda path: training.loss(batch, path))
'''

STUDY = """
from harness.study import Column, Row, Study

toy = {"space": "toy", "dataset": "toy", "benchmark": "toy", "rank.images": 50, "rank.candidates": 12, "rank.bins": 5,
       "train.epochs": 4, "train.batch_size": 16, "network.width": 4, "schedule.name": "mortal", "optimiser.clip": None}
rows = {
    "sign": {"optimiser.name": "sign", "optimiser.learning_rate": 0.01, "clusters.name": "operation"},
    "adamw": {"optimiser.name": "adamw", "optimiser.clip_value": 0.01, "clusters.name": "operation"},
    "learnt": {"method.name": "learnt"},
    "distilling": {"method.name": "distilling"},
    "resampling": {"method.name": "resampling"},
    "dividing": {"method.name": "dividing", "sampler.name": "curious"},
    "curious": {"sampler.name": "curious"},
    "half": {"train.precision": "float16"},
    "warm": {"train.warmup_epochs": 1, "train.warmup_steps": 2, "train.least_rate": 0.2},
    "measuring": {"rank.metrics": ["regret"], "observe.own": ["weight-norm"]},
    "searching": {"train.label_smoothing": 0.1, "search.name": "best-of-n-random", "search.samples": 6,
                  "search.batches": 1, "search.keep": 2},
}
rows |= {
    "nsas": {"method.name": "nsas", "method.candidates": 9, "method.size": 2, "method.neighbours": 2},
    "cream": {"method.name": "cream", "method.board": 2, "method.meta_every": 2},
    "sandwich": {"method.name": "sandwich", "optimiser.clip_value": 1.0},
    "gm-nas": {"method.name": "gm-nas", "method.batches": 2},
    "shifting": {"method.name": "supernet-shifting", "method.share": 0.7, "method.steps": 2, "method.batches": 1,
                 "method.population": 3, "method.parents": 2, "method.mutations": 1, "method.crossovers": 1},
}
separated = {
    "sumnas": {"method.name": "sumnas", "method.paths_renewed": "epoch"},
    "pa-da": {"method.name": "pa-da"},
    "greedynas": {"method.name": "greedynas", "method.candidates": 4, "method.kept": 3},
    "shiftnas": {"method.name": "shiftnas-reading", "method.groups": 2, "method.uniform": 0.0},
}
rows |= {name: own | {"clusters.name": "operation"} for name, own in separated.items()}
able = {key: value for key, value in toy.items() if key != "network.width"}
able |= {"space": "able", "benchmark": None, "rank.calibration": 1}
rows = {name: toy | own for name, own in rows.items()}
rows |= {"mixing": able | {"method.name": "mixing"}, "mixing twice": able | {"method.name": "mixing-twice"}}
rows |= {"darts": able | {"method.name": "darts"}, "darts twice": able | {"method.name": "darts", "method.order": 2}}
rows |= {"gdas": able | {"method.name": "gdas", "method.architecture_rate": 0.1}}
study = Study("steps", "Steps", [Row({"Toy": name}, own) for name, own in rows.items()],
              [Column("τ", "kendall_tau")])
"""

ROWS = (
    *("sign", "adamw", "learnt", "distilling", "resampling", "dividing"),
    *("curious", "half", "warm", "measuring", "searching", "nsas", "cream", "sandwich", "mixing", "mixing twice"),
    *("sumnas", "pa-da", "greedynas", "shiftnas", "gm-nas", "shifting", "darts", "darts twice", "gdas"),
)
FILES = {
    "spaces/toy.py": TOY,
    "spaces/able.py": able.SPACE,
    "methods/mortal.py": MORTAL,
    "methods/sign.py": SIGN,
    "methods/own.py": OWN,
    "methods/curious.py": CURIOUS,
    "methods/mixing.py": able.MIXING,
    "methods/measures.py": example_files()["methods/measures.py"],
    "studies/steps.py": STUDY,
}
