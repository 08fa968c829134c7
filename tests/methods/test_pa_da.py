"""PA&DA: the probabilities of operations and images, by slow references; and the frequencies that follow."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any

import pytest
import torch

from harness.components.discovery import component
from harness.components.method import sampler_of
from harness.components.space import Space
from harness.errors import InvalidConfiguration
from harness.training.stages.train import make_step
from tests.methods.small import IMAGES, STEPS, Small, batch_of, samplers, training_of
from tests.methods.test_methods import Toy

pa_da: Any = component("methods.pa_da")


@pytest.mark.parametrize(("tau", "behind"), [("before", 6), ("present", 0)])
def test_operations_are_drawn_by_the_gradients_of_the_epoch_before(tau: str, behind: int) -> None:
    method = pa_da.PADA(tau=tau)
    training = training_of(method)
    training.steps_per_epoch, training.total_steps = 6, 24
    norms = {3: [0.0] * 3, 2: [0.0] * 2}  # one vector for all decisions of three choices
    often, together = 0, 0
    for step in range(12):
        make_step(method, training, batch_of(step), step)
        [path] = training.trained
        for kind in (3, 2):
            for choice in range(1, kind):
                places = [d for d in range(3) if Small.choices[d] == kind and path[d] == choice]
                if places:
                    found = [training.network.matrix(d, choice) for d in places]
                    new = sum(float(p.grad.norm()) for one in found for p in one.parameters()) / len(places)
                    often += norms[kind][choice] > 0
                    together += len(places) == 2
                    norms[kind][choice] = (norms[kind][choice] + new) / 2
        if step % 6 == 5:
            share = (step + 1 - behind) / 24
            for kind, own in norms.items():
                expected = [share * norm / sum(own) + (1 - share) / kind if sum(own) else 1 / kind for norm in own]
                assert training.source.probabilities[str(kind)] == pytest.approx(expected)
                assert sum(own) > 0 and min(expected) > 0
            norms = {3: [0.0] * 3, 2: [0.0] * 2}
    assert often and together  # choices in several steps of an epoch, and twice in one path


def test_frequencies_are_the_probabilities_and_fixed_decisions_stay() -> None:
    source = pa_da.PathImportance().bind(Small(), {1: 1})
    uniform = [source.draw(random.Random(seed)) for seed in range(50)]
    assert {path[1] for path in uniform} == {1} and {path[0] for path in uniform} == {0, 1, 2}
    source.restore({"norms": {}, "probabilities": {"3": [0.1, 0.2, 0.7], "2": [1.0, 0.0]}, "measured": [0, 1]})
    rng = random.Random(1)
    drawn = [source.draw(rng) for _ in range(3000)]
    first, second, third = (Counter(path[decision] for path in drawn) for decision in range(3))
    assert [round(first[choice] / 3000, 1) for choice in range(3)] == [0.1, 0.2, 0.7] and set(second) == {1}
    assert all(abs(third[choice] - 1000) < 130 for choice in range(3))  # its choices have no parameters: uniform


def drawn_by(method: Any, training: Any, epoch: int, chances: list[float]) -> None:
    """Whether the images of an epoch are drawn with these probabilities."""
    errors = method.errors(training)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(method), "errors", lambda self, training: errors)
        drawn: Counter[int] = Counter()
        for _ in range(200):
            training.memory["drawn"] = [(torch.zeros(1), torch.zeros(1))]
            drawn.update(method.data_order(training, epoch))
    assert drawn.total() == 200 * IMAGES
    distance = sum((drawn[n] - 9600 * p) ** 2 / (9600 * p) for n, p in enumerate(chances))
    assert distance < 85  # 47 degrees of freedom, 1 in 1,000


@pytest.mark.parametrize(("tau", "share"), [("before", 0.5), ("present", 0.75)])
def test_images_are_drawn_by_the_errors_of_the_epoch_before(tau: str, share: float) -> None:
    """One that was not drawn has none; each repeated draw is averaged with what is known."""
    method = pa_da.PADA(tau=tau, image_norms="epoch")
    training = training_of(method)
    training.memory["drawn"] = [
        (torch.tensor([3, 5, 3]), torch.tensor([0.4, 1.0, 0.8])),
        (torch.tensor([3, 7]), torch.tensor([1.2, 0.5])),
    ]
    errors = [0.0] * IMAGES
    errors[3], errors[5], errors[7] = ((0.4 + 0.8) / 2 + 1.2) / 2, 1.0, 0.5
    drawn_by(method, training, 3, [share * one / sum(errors) + (1 - share) / IMAGES for one in errors])


def test_images_are_drawn_by_the_error_when_they_were_last_seen() -> None:
    method = pa_da.PADA(image_norms="last", tau="present")
    training = training_of(method)
    assert method.data_order(training, 0) is None
    expected = torch.full((IMAGES,), math.sqrt(2))
    for step in range(STEPS - 1):  # the images of the last step are never seen
        batch, before = batch_of(step), {name: one.clone() for name, one in training.network.state_dict().items()}
        make_step(method, training, batch, step)
        after = training.network.state_dict()
        after = {name: one.clone() for name, one in after.items()}
        training.network.load_state_dict(before)
        answers = training.network(batch.images, training.trained[0]).softmax(1).detach()
        training.network.load_state_dict(after)
        for place, index in enumerate(batch.indices.tolist()):
            wanted = torch.eye(3)[batch.labels[place]]
            expected[index] = ((answers[place] - wanted) ** 2).sum().sqrt()
    torch.testing.assert_close(method.errors(training).float(), expected)
    training.memory["drawn"] = [(torch.tensor([0, 0]), torch.tensor([9.0, 5.0]))]  # the later one counts
    expected[0] = 5.0
    drawn_by(method, training, 3, [0.75 * one / float(expected.sum()) + 0.25 / IMAGES for one in expected.tolist()])


def test_soft_labels_have_an_error_too() -> None:
    method = pa_da.PADA()
    training = training_of(method)
    batch = batch_of(0)
    soft = torch.nn.functional.one_hot(batch.labels, 3).float()
    make_step(method, training, batch._replace(labels=soft), 0)
    again = training_of(method)
    make_step(method, again, batch, 0)
    torch.testing.assert_close(method.errors(training), method.errors(again))


@pytest.mark.parametrize(("unreached", "share"), [("keep", 1), ("halve", 0.5)])
def test_a_choice_without_any_gradient_keeps_its_norm_or_halves_it(unreached: str, share: float) -> None:
    training = training_of(pa_da.PADA(unreached=unreached))
    training.source.norms = {"3": [0.0, 0.6, 0.8], "2": [0.0, 0.4]}
    training.source.learn(training, [(1, 1, 2)], torch.zeros(1))  # no backward pass has been made
    assert training.source.norms == {"3": [0.0, 0.6 * share, 0.8 * share], "2": [0.0, 0.4 * share]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": "later"}, "method.tau is 'later'; allowed: before, present"),
        ({"image_norms": "all"}, "method.image_norms is 'all'; allowed: epoch, last"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        pa_da.PADA(**options)


def test_a_space_that_does_not_tell_operations_apart_is_refused() -> None:
    assert Toy.operation_parameters is Space.operation_parameters
    with pytest.raises(InvalidConfiguration, match="toy does not say which parameters belong to one"):
        pa_da.PathImportance().bind(Toy((2, 2)), {})


def test_a_sampler_beside_the_methods_own_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match=r"PADA samples paths in its own way.*sampler\.name=uniform"):
        sampler_of(pa_da.PADA(), Small(), samplers.ByComplexity())
    assert isinstance(sampler_of(pa_da.PADA(), Small(), samplers.Uniform()), pa_da.PathImportance)
