"""What DARTS and GDAS share: architecture parameters α that are learned by validation loss, with an Adam of their own.

The architecture found has the strongest choices; architectures are ranked by the learned distribution. CaLR and MS are
refused, because no step belongs to a single subnet.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from harness.components.clustering import Clustering
from harness.components.method import Method, Step
from harness.components.option import added
from harness.components.sampler import Sampler
from harness.components.schedule import Schedule
from harness.components.space import Architecture, Space
from harness.errors import InvalidConfiguration, require

from .optimisers import _holder

if TYPE_CHECKING:
    from torch import Tensor

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining

SPREAD = 1e-3
"""Standard deviation of the initial architecture parameters."""

UPDATES = ("architecture", "weights")

REASON = (
    "differentiable methods optimise the weights and the importance of operations together, without considering "
    "individual subnets (the paper, Limitations)"
)


@dataclass(frozen=True)
class Differentiable(Method):
    """A method with architecture parameters: one vector per decision of `Space.operation_decisions`."""

    paths_vary: ClassVar[bool] = True  # a step has one loss, whatever it costs

    architecture_rate: float = 3e-4
    """The learning rate of the architecture parameters."""
    architecture_betas: tuple[float, ...] = (0.5, 0.999)
    """The decay of the running means of their gradients and of the squares of these."""
    architecture_decay: float = 1e-3
    """Their weight decay."""
    first_update: str = added("architecture")
    """What a step updates first, the architecture parameters or the weights; the other one then sees the change."""

    def __post_init__(self) -> None:
        betas, rate, decay = self.architecture_betas, self.architecture_rate, self.architecture_decay
        require(rate > 0, f"method.architecture_rate must be above 0, not {rate}")
        require(decay >= 0, f"method.architecture_decay must not be negative, not {decay}")
        require(
            len(betas) == 2 and all(0 <= beta < 1 for beta in betas),
            f"method.architecture_betas must be two numbers in [0, 1), not {list(betas)}",
        )
        require(
            self.first_update in UPDATES,
            f"method.first_update is {self.first_update!r}; allowed: {', '.join(UPDATES)}",
        )

    def check(self, space: Space, clustering: Clustering, sampler: Sampler) -> None:
        name = type(self).__name__
        if clustering.count > 1:
            raise InvalidConfiguration(f"{name} cannot use MS: {REASON}; use clusters.name=none")
        if not sampler.bind(space, {}).uniform:
            raise InvalidConfiguration(f"{name} does not draw from a sampler; use sampler.name=uniform")

    def check_schedule(self, schedule: Schedule) -> None:
        if schedule.depends_on_path:
            raise InvalidConfiguration(
                f"{type(self).__name__} cannot use CaLR: {REASON}; use a schedule that is the same for all subnets, "
                "as schedule.name=cosine"
            )

    def begin(self, training: SupernetTraining) -> None:
        import torch

        sizes = [training.space.choices[decision] for decision in training.space.operation_decisions]
        alphas = torch.nn.ParameterList(SPREAD * torch.randn(size) for size in sizes).to(training.device)
        training.modules["alphas"] = alphas
        training.modules["optimiser"] = adam()(
            alphas.parameters(),
            lr=self.architecture_rate,
            betas=self.architecture_betas,
            weight_decay=self.architecture_decay,
        )

    def train_step(self, training: SupernetTraining, batch: Batch, step: int) -> Step:
        valid = training.validation.batch(step)
        training.clear_gradients()
        if self.first_update == "architecture":
            self.learn(training, batch, valid, step)
        loss = self.train_weights(training, batch, step)
        if self.first_update == "weights":
            self.learn(training, batch, valid, step)
        passes, images = self.passes(training.space), (len(batch.labels), len(valid.labels))
        return Step(loss, sum(passes), sum(own * count for own, count in zip(passes, images, strict=True)))

    @abstractmethod
    def passes(self, space: Space) -> tuple[int, int]:
        """Passes of a step over the training batch, and over the validation batch."""

    def paths_per_step(self, space: Space) -> int:
        return sum(self.passes(space))

    @abstractmethod
    def learn(self, training: SupernetTraining, batch: Batch, valid: Batch, step: int) -> None:
        """Update the architecture parameters by the validation batch."""

    @abstractmethod
    def train_weights(self, training: SupernetTraining, batch: Batch, step: int) -> Tensor:
        """Update the weights by the training batch; returns the losses."""

    def score(self, trainings: Sequence[SupernetTraining], architecture: Architecture) -> float:
        """The logarithm of the architecture's probability: of its operations, where these matter."""
        (training,) = trainings
        space, alphas = training.space, alphas_of(training)
        return sum(
            float(alpha.detach().double().log_softmax(0)[architecture[decision]])
            for decision, alpha in zip(space.operation_decisions, alphas, strict=True)
            if space.matters(architecture, decision)
        )

    def found(self, training: SupernetTraining) -> list[Architecture]:
        weights = every_decision(training, [alpha.detach().softmax(0) for alpha in alphas_of(training)])
        return [training.space.strongest([own.tolist() for own in weights])]


@cache
def adam() -> Any:
    """Torch's Adam with a step of its own, which does not import torch's compiler."""
    import torch

    class Adam(_holder("Adam")):  # type: ignore[misc]
        @torch.no_grad()
        def step(self, closure: None = None) -> None:
            for group in self.param_groups:
                (one, two), rate = group["betas"], group["lr"]
                for parameter in (one for one in group["params"] if one.grad is not None):
                    state = self.state[parameter]
                    gradient = parameter.grad.add(parameter, alpha=group["weight_decay"])
                    mean = state.setdefault("exp_avg", torch.zeros_like(parameter))
                    square = state.setdefault("exp_avg_sq", torch.zeros_like(parameter))
                    state["step"] = done = int(state.get("step", 0)) + 1  # torch loads it as a tensor
                    mean.lerp_(gradient, 1 - one)
                    square.mul_(two).addcmul_(gradient, gradient, value=1 - two)
                    divisor = (square.sqrt() / (1 - two**done) ** 0.5).add_(group["eps"])
                    parameter.addcdiv_(mean, divisor, value=-rate / (1 - one**done))

    return Adam


def alphas_of(training: SupernetTraining) -> list[Tensor]:
    """The architecture parameters."""
    modules: dict[str, Any] = training.modules
    return list(modules["alphas"])


def passes_of_a_mixture(space: Space) -> int:
    """A mixture computes every operation once, as the fair paths of a FairNAS step do: it counts as that many."""
    return max(space.choices[decision] for decision in space.operation_decisions)


def every_decision(training: SupernetTraining, learned: Sequence[Tensor]) -> list[Tensor]:
    """Weights of all decisions, as `Mixture.forward_mixed` takes them: the learned ones, and constants elsewhere."""
    space, by_decision = training.space, dict(zip(training.space.operation_decisions, learned, strict=True))
    return [
        by_decision[decision]
        if decision in by_decision
        else learned[0].new_full((count,), space.constant_weight(decision))
        for decision, count in enumerate(space.choices)
    ]
