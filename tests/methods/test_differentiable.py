"""DARTS and GDAS: their gradients by finite differences and autograd, their samples, and what they refuse."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch

from harness.components.dataset import DataSet
from harness.components.discovery import component
from harness.components.preset import get_preset
from harness.components.registries import SPACES
from harness.data.loader import Batch
from harness.errors import InvalidConfiguration
from harness.study.catalogue import all_studies
from harness.study.expansion import expand
from harness.training.stages.train import build_supernets, make_step, prepare
from harness.training.supernet import SupernetTraining
from harness.training.trial import rank_again, run_trial
from harness.work.effort import effort
from tests.training.stages import test_train

shared: Any = component("methods._differentiable")
darts: Any = component("methods.darts")
gdas: Any = component("methods.gdas")
clusters, samplers, schedules = (component(f"methods.{name}") for name in ("clusters", "samplers", "schedules"))
SPACE = SPACES.get("nasbench201")()
EDGES: Any = component("spaces.nasbench201.cell").EDGES
tiny: Any = test_train.tiny  # a method may be given with its options


def training_of(images: DataSet, **method: Any) -> tuple[Any, SupernetTraining, Batch, Batch]:
    """The method and its training after two steps, in float64, with a training and a validation batch."""
    config = tiny(method, optimiser={"learning_rate": 0.05, "clip": None}, train={"epochs": 4, "batch_size": 32})
    made, (training,) = prepare(config, build_supernets(config, images), 2, images)
    train, valid = (loader.batch(0) for loader in (training.unaugmented, training.validation))
    for step in range(2):
        make_step(made, training, train, step)
    training.network.double()
    training.modules["alphas"].double()  # type: ignore[union-attr]
    training.modules["optimiser"].state.clear()  # type: ignore[union-attr, operator]
    training.momentum.optimisers.clear()
    train, valid = (Batch(one.images.double(), one.labels, one.indices) for one in (train, valid))
    return made, training, train, valid


def set_alphas(training: SupernetTraining, values: list[torch.Tensor]) -> None:
    with torch.no_grad():
        for alpha, value in zip(shared.alphas_of(training), values, strict=True):
            alpha.copy_(value)


def test_the_gradient_of_second_order_is_that_of_finite_differences(few_digits: DataSet) -> None:
    torch.manual_seed(0)
    _, training, batch, valid = training_of(few_digits, name="darts", order=2)
    network, rate = training.network, 0.05 * training.rate_factors([()], 2)[0]
    for parameter in training.momentum.parameters:
        buffer = 0.01 * torch.randn_like(parameter)
        training.momentum.of(0).state[parameter] = {"momentum_buffer": buffer}
    names, own = zip(*network.named_parameters(), strict=True)
    alphas = [torch.randn_like(alpha) for alpha in shared.alphas_of(training)]

    def after_a_step(values: list[torch.Tensor]) -> torch.Tensor:
        """The validation loss after a step of the weights with these architecture parameters."""
        set_alphas(training, values)
        with network.twice_differentiable():  # type: ignore[operator]
            loss = training.mixed_loss(batch, darts.mixture(training))
            slopes = torch.autograd.grad(loss, own, materialize_grads=True)
            buffers = [training.momentum.of(0).state[one]["momentum_buffer"] for one in own]
            moved = [w - rate * (g + 5e-4 * w + 0.9 * m) for w, g, m in zip(own, slopes, buffers, strict=True)]
            return training.mixed_loss(valid, darts.mixture(training), dict(zip(names, moved, strict=True))).detach()

    set_alphas(training, alphas)
    gradient = darts.unrolled_gradient(training, batch, valid, 2)
    set_alphas(training, alphas)
    first = torch.autograd.grad(training.mixed_loss(valid, darts.mixture(training)), shared.alphas_of(training))
    h = 1e-6  # small, because a ReLU changes sides somewhere for larger ones
    for _ in range(2):
        along = [torch.randn_like(alpha) for alpha in alphas]
        ahead, behind = (
            after_a_step([a + sign * h * d for a, d in zip(alphas, along, strict=True)]) for sign in (1, -1)
        )
        expected = (ahead - behind) / (2 * h)
        slope, plain = (sum((g * d).sum() for g, d in zip(one, along, strict=True)) for one in (gradient, first))
        assert float(slope) == pytest.approx(float(expected), rel=1e-4)
        assert float(plain) != pytest.approx(float(expected), rel=1e-2)  # the first order is another gradient


def test_the_first_order_is_autograds_and_leaves_the_weights_gradients_alone(
    few_digits: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, training, batch, valid = training_of(few_digits, name="darts")
    alphas = shared.alphas_of(training)
    weights = [alpha.softmax(0) for alpha in alphas]
    loss = torch.nn.functional.cross_entropy(training.network.forward_mixed(valid.images, weights), valid.labels)  # type: ignore[operator]
    expected = torch.autograd.grad(loss, alphas)
    seen: list[torch.Tensor] = []
    update = SupernetTraining.update_own

    def watched(self: SupernetTraining, name: str) -> None:
        seen.extend(alpha.grad.clone() for alpha in shared.alphas_of(self))
        assert all(parameter.grad is None for parameter in self.network.parameters())
        update(self, name)

    monkeypatch.setattr(SupernetTraining, "update_own", watched)
    monkeypatch.setattr(training.validation, "batch", lambda step: valid)
    before = [alpha.detach().clone() for alpha in alphas]
    done = make_step(method, training, batch, 2)
    assert all(map(torch.allclose, seen, expected)) and len(seen) == 6
    # Each entry moves against its gradient, by about the rate, the first step of Adam.
    for alpha, start, gradient in zip(alphas, before, expected, strict=True):
        assert torch.equal((alpha - start).sign(), -gradient.sign())
    assert all(alpha.grad is None for alpha in alphas)
    assert (done.passes, done.images, len(done.losses)) == (10, 5 * 64, 1)


@pytest.mark.parametrize(("order", "passes"), [(1, 10), (2, 20)])
def test_a_mixture_counts_as_a_pass_per_operation(order: int, passes: int) -> None:
    assert darts.DARTS(order=order).paths_per_step(SPACE) == passes
    assert gdas.GDAS().paths_per_step(SPACE) == 2 and gdas.GDAS(operations="all").paths_per_step(SPACE) == 6


def test_a_sample_is_one_hot_and_has_the_gradient_of_the_softmax() -> None:
    rng = random.Random(0)
    for temperature in (10.0, 1.0, 0.1):
        alpha = torch.tensor([0.3, -0.2, 0.9, 0.0], dtype=torch.double, requires_grad=True)
        noise = torch.tensor([rng.gauss(0, 1) for _ in alpha], dtype=torch.double)
        soft = ((alpha.log_softmax(0) + noise) / temperature).softmax(0)
        hard = gdas.hard_sample(alpha, noise, temperature)
        assert sorted(hard.tolist()) == [0.0, 0.0, 0.0, 1.0] and int(hard.argmax()) == int(soft.argmax())
        for entry in range(4):
            (own,) = torch.autograd.grad(hard[entry], alpha, retain_graph=True)
            (its,) = torch.autograd.grad(soft[entry], alpha, retain_graph=True)
            assert torch.allclose(own, its) and bool((own != 0).any())


def test_samples_follow_the_learned_distribution(few_digits: DataSet) -> None:
    _, training, _, _ = training_of(few_digits, name="gdas")
    set_alphas(training, [torch.tensor([2.0, 1.0, 0.0, 0.0, -1.0]).double().log_softmax(0)] * 6)
    drawn = [gdas.sample(training, 0.5)[0] for _ in range(400)]
    share = sum(path.count(0) for path in drawn) / 2400
    probability = float(torch.tensor([2.0, 1.0, 0.0, 0.0, -1.0]).softmax(0)[0])
    assert share == pytest.approx(probability, abs=0.05)  # 5 deviations; Gumbel's maximum is the softmax


def test_the_temperature_falls_linearly_from_10_to_a_tenth_by_epochs_or_steps(few_digits: DataSet) -> None:
    found = {}
    for falls in ("epoch", "step"):
        method, training, _, _ = training_of(few_digits, name="gdas", temperature_falls=falls)
        found[falls] = [method.temperature_at(training, step) for step in range(training.total_steps)]
    assert found["epoch"] == pytest.approx([10, 10, 6.7, 6.7, 3.4, 3.4, 0.1, 0.1])  # 4 epochs of 2 steps
    assert found["step"] == pytest.approx([10 - 9.9 * step / 7 for step in range(8)])


def test_gdas_takes_the_chosen_operations_gradient_or_that_of_all(few_digits: DataSet) -> None:
    """Of the whole straight-through gradient, "chosen" is the part that goes through the choices' own weights."""
    _, training, _, valid = training_of(few_digits, name="gdas")
    alphas = shared.alphas_of(training)
    set_alphas(training, [torch.randn_like(alpha) for alpha in alphas])
    path, weights = gdas.sample(training, 1.0)
    whole = torch.autograd.grad(training.mixed_loss(valid, weights), weights, retain_graph=True)
    masked = [slope * weight.detach() for slope, weight in zip(whole, weights, strict=True)]
    expected = torch.autograd.grad(weights, alphas, masked, retain_graph=True)
    gates = [own[choice] for own, choice in zip(weights, path, strict=True)]
    loss = training.gated_loss(valid, path, gates)
    found = torch.autograd.grad(loss, alphas, retain_graph=True, materialize_grads=True)
    assert all(map(torch.allclose, found, expected))
    every = torch.autograd.grad(weights, alphas, whole)
    assert not all(map(torch.allclose, every, expected))


def cell_as_released(cell: Any, x: torch.Tensor, path: tuple[int, ...], weights: list[torch.Tensor]) -> torch.Tensor:
    """A cell in which each edge adds its chosen operation times its weight, and the weights of all others."""
    nodes = [x]
    for target in (1, 2, 3):
        total: Any = 0
        for edge, (end, source) in enumerate(EDGES):
            if end == target:
                value = nodes[source]
                results: list[Any] = [
                    lambda x: 0 * x,
                    lambda x: x,
                    *(lambda x, o=o, e=edge: cell.convolutions[f"{e}_{o}"](torch.relu(x)) for o in (2, 3)),
                    lambda x: torch.nn.functional.avg_pool2d(x, 3, 1, padding=1, count_include_pad=False),
                ]
                for choice, weight in enumerate(weights[edge]):
                    total = total + (weight * results[choice](value) if choice == path[edge] else weight)
        nodes.append(total)
    return nodes[-1]


@pytest.mark.parametrize("path", [(3, 4, 1, 2, 3, 3), (0, 3, 1, 4, 2, 1), (0, 3, 4, 1, 4, 1)])
def test_gdas_as_released_adds_the_weights_of_operations_that_were_not_chosen(
    path: tuple[int, ...], few_digits: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a node gets nothing but these weights: their gradient passes skips and pools."""
    method, training, _, valid = training_of(few_digits, name="gdas", operations="released")
    alphas, temperature = shared.alphas_of(training), method.temperature_at(training, 2)
    noise = [torch.tensor([9.0 * (choice == own) for choice in range(5)]) for own in path]
    weights = [gdas.hard_sample(alpha, one, temperature) for alpha, one in zip(alphas, noise, strict=True)]
    network: Any = training.network
    logits = network._through(valid.images, lambda cell, x: cell_as_released(cell, x, path, weights))
    loss = torch.nn.functional.cross_entropy(logits, valid.labels)
    expected = torch.autograd.grad(loss, alphas, retain_graph=True, materialize_grads=True)
    gates = [own[choice] for own, choice in zip(weights, path, strict=True)]
    chosen = training.gated_loss(valid, path, gates)
    assert chosen.item() == pytest.approx(loss.item())
    slopes = torch.autograd.grad(chosen, alphas, materialize_grads=True)
    assert not all(map(torch.allclose, slopes, expected))

    draws = iter(noise)
    found: list[torch.Tensor] = []
    monkeypatch.setattr(gdas, "gumbel", lambda training, count: next(draws))
    monkeypatch.setattr(
        SupernetTraining, "update_own", lambda self, name: found.extend(alpha.grad.clone() for alpha in alphas)
    )
    method.learn(training, valid, valid, 2)
    assert len(found) == 6 and all(map(torch.allclose, found, expected))


@pytest.mark.parametrize("name", ["darts", "gdas"])
@pytest.mark.parametrize("first", ["weights", "architecture"])
def test_the_second_update_of_a_step_sees_the_first_one(
    name: str, first: str, few_digits: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, training, batch, _ = training_of(few_digits, name=name, first_update=first)
    seen = []
    weights, alphas = list(training.network.parameters()), shared.alphas_of(training)
    before = [one.detach().clone() for one in (*weights, *alphas)]

    def changed() -> tuple[bool, bool]:
        now = [not torch.equal(one, old) for one, old in zip((*weights, *alphas), before, strict=True)]
        return any(now[: len(weights)]), any(now[len(weights) :])

    for hook in ("learn", "train_weights"):
        plain = getattr(type(method), hook)

        def watched(*given: Any, plain: Any = plain, hook: str = hook) -> Any:
            seen.append((hook, changed()))
            return plain(*given)

        monkeypatch.setattr(type(method), hook, watched)
    monkeypatch.setattr(training.validation, "batch", lambda step: batch)
    done = make_step(method, training, batch, 2)
    order = ["learn", "train_weights"] if first == "architecture" else ["train_weights", "learn"]
    halfway = (False, True) if first == "architecture" else (True, False)
    assert seen == [(order[0], (False, False)), (order[1], halfway)] and changed() == (True, True)
    assert done.passes == method.paths_per_step(SPACE)


@pytest.mark.parametrize("unneeded", ["decay", "left"])
def test_parameters_of_edges_that_a_path_does_not_need_keep_their_momentum_or_stay(
    unneeded: str, few_digits: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, training, batch, _ = training_of(few_digits, name="gdas", unneeded=unneeded)
    noise = itertools.cycle([[9.0 * (choice == own) for choice in range(5)] for own in (1, 1, 1, 3, 0, 0)])
    monkeypatch.setattr(training.validation, "batch", lambda step: batch)
    make_step(method, training, batch, 2)
    monkeypatch.setattr(gdas, "gumbel", lambda training, count: next(noise))
    before = [alpha.detach().clone() for alpha in shared.alphas_of(training)]
    make_step(method, training, batch, 3)  # only edge 3 leads from input to output
    stayed = list(map(torch.equal, before, shared.alphas_of(training)))
    assert stayed == ([False] * 6 if unneeded == "decay" else [True, True, True, False, True, True])


@pytest.mark.parametrize("operations", ["chosen", "released", "all"])
def test_a_step_of_gdas_learns_and_trains_single_paths(operations: str, few_digits: DataSet) -> None:
    config = tiny({"name": "gdas", "operations": operations, "architecture_rate": 0.1})
    method, (training,) = prepare(config, build_supernets(config, few_digits), 2, few_digits)
    before = [alpha.detach().clone() for alpha in shared.alphas_of(training)]
    for step in range(4):
        done = make_step(method, training, training.unaugmented.batch(step), step)
        assert len(training.trained) == 1 and done.passes == method.paths_per_step(SPACE)
    moved = [not torch.equal(a, b) for a, b in zip(before, shared.alphas_of(training), strict=True)]
    assert sum(moved) >= 5


def test_the_strongest_choices_are_found_and_the_distribution_ranks(few_digits: DataSet) -> None:
    method, training, _, _ = training_of(few_digits, name="darts")
    set_alphas(training, [torch.randn_like(alpha) for alpha in shared.alphas_of(training)])
    (best,) = method.found(training)
    others = [SPACE.sample(random.Random(number)) for number in range(50)]
    scores = {one: method.score([training], one) for one in [best, *others]}
    assert max(scores, key=lambda one: scores[one]) == best
    weights = darts.mixture(training)
    assert scores[best] == pytest.approx(float(sum(own.max().log() for own in weights)))


def test_architecture_parameters_have_torchs_adam() -> None:
    ours, theirs = (torch.nn.Parameter(torch.tensor([0.3, -0.2, 1.0])) for _ in range(2))
    own = shared.adam()([ours], lr=0.01, betas=(0.5, 0.999), weight_decay=0.1)
    torchs = torch.optim.Adam([theirs], lr=0.01, betas=(0.5, 0.999), weight_decay=0.1)
    for step in range(10):
        for parameter, optimiser in ((ours, own), (theirs, torchs)):
            parameter.grad = parameter.detach() * (step - 4) + 0.1
            optimiser.step()
        if step == 5:
            fresh = shared.adam()([ours], lr=0.01, betas=(0.5, 0.999), weight_decay=0.1)
            fresh.load_state_dict(own.state_dict())
            own = fresh
    assert torch.allclose(ours, theirs, atol=1e-7)


def test_what_a_method_finds_is_its_top1_also_when_it_is_judged_again() -> None:
    ranking = {"images": 64, "candidates": 3, "bins": 5}
    config = tiny("gdas", train={"epochs": 1, "batch_size": 512}, rank=ranking)
    first = run_trial(config)
    (found,) = first.result["found"]
    assert first.result["top1"] == found["architecture"] and first.result["top1_accuracy"] > 0
    known = {SPACE.index(one): score for one, score in first.predictions.items()}
    assert SPACE.index(tuple(found["architecture"])) not in known
    again = rank_again(config, list, known, found=[found])
    assert again.result["top1"] == found["architecture"] and again.result["kendall_tau"] == first.result["kendall_tau"]
    searching = tiny("gdas", train={"epochs": 1, "batch_size": 512}, rank=ranking, search={"name": "random"})
    searched = run_trial(searching)
    assert tuple(searched.result["top1"]) in searched.predictions  # ranked: the method is not asked where one searches


def test_all_methods_make_the_passes_of_spos_in_the_demo() -> None:
    """The differentiable ones, and those that split."""
    (study,) = [one for one in all_studies() if one.name == "sota"]
    found = {}
    for request in expand(study, get_preset("demo"), seeds=1):
        config = request.trial.config
        planned = effort(config, lambda name: {"train": 1536})
        assert planned is not None
        found[config.method.name, config.method.options.get("order")] = planned.passes
    assert {found[key] for key in (("spos", None), ("darts", 1), ("darts", 2), ("gdas", None))} == {480}
    assert found["gm-nas", None] == pytest.approx(480, rel=0.02)  # shares of 7 epochs are rounded


@pytest.mark.parametrize("name", ["darts", "gdas"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clusters": "operation"}, "cannot use MS: differentiable methods .* without considering individual subnets"),
        ({"schedule": "calr"}, "cannot use CaLR: .*the paper, Limitations.*schedule.name=cosine"),
        ({"sampler": "by-complexity"}, "does not draw from a sampler; use sampler.name=uniform"),
    ],
)
def test_calr_ms_and_samplers_are_refused_with_the_reason(
    name: str, settings: dict[str, Any], message: str, few_digits: DataSet
) -> None:
    config = tiny(name, **settings)
    with pytest.raises(InvalidConfiguration, match=message):
        prepare(config, build_supernets(config, few_digits), 2, few_digits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "darts", "order": 3}, "method.order must be 1 or 2, not 3"),
        ({"name": "darts", "architecture_rate": 0}, "method.architecture_rate must be above 0"),
        ({"name": "gdas", "final_temperature": 0}, "method.final_temperature must be above 0"),
        ({"name": "gdas", "operations": "some"}, "method.operations is 'some'; allowed: chosen, released, all"),
        ({"name": "gdas", "temperature_falls": "never"}, "method.temperature_falls is 'never'; allowed: step, epoch"),
        ({"name": "darts", "first_update": "both"}, "method.first_update is 'both'; allowed: architecture, weights"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        tiny(options)


def test_mixtures_train_in_half_precision_and_gradients_of_gradients_refuse_the_one_that_scales(
    few_digits: DataSet,
) -> None:
    def losses(precision: str, **options: Any) -> list[float]:
        config = tiny({"name": "darts"} | options, train={"epochs": 2, "batch_size": 32, "precision": precision})
        method, (training,) = prepare(config, build_supernets(config, few_digits), 2, few_digits)
        return [float(make_step(method, training, training.unaugmented.batch(n), n).losses) for n in range(2)]

    whole, half = losses("float32"), losses("bfloat16")
    assert half == pytest.approx(whole, rel=0.05) and half != whole
    assert losses("bfloat16", order=2) == pytest.approx(losses("float32", order=2), rel=0.05)
    with pytest.raises(InvalidConfiguration, match="cannot use train.precision=float16"):
        losses("float16", order=2)


def on_the_darts_space(images: DataSet, **method: Any) -> tuple[Any, SupernetTraining]:
    network = {"width": 2, "depth": 3}
    config = tiny(method, space="darts-none", benchmark=None, network=network, train={"epochs": 2, "batch_size": 16})
    made, (training,) = prepare(config, build_supernets(config, images), 2, images)
    return made, training


@pytest.mark.parametrize("method", [{"name": "darts"}, {"name": "gdas"}])
def test_the_darts_space_has_parameters_for_operations_alone(method: dict[str, Any], few_digits: DataSet) -> None:
    made, training = on_the_darts_space(few_digits, architecture_rate=0.1, **method)
    space: Any = training.space
    before = [alpha.detach().clone() for alpha in shared.alphas_of(training)]
    assert [len(alpha) for alpha in before] == [8] * 28
    make_step(made, training, training.unaugmented.batch(0), 0)
    assert sum(not torch.equal(a, b) for a, b in zip(before, shared.alphas_of(training), strict=True)) > 20
    (found,) = made.found(training)
    assert "none" not in space.format(found)
    # Of equally many operations, those that were found are the most probable ones, but for none.
    likely = made.score([training], found)
    strengths = [float(alpha.detach()[1:].max() - alpha.detach().logsumexp(0)) for alpha in shared.alphas_of(training)]
    ends = itertools.pairwise((0, 2, 5, 9, 14, 16, 19, 23, 28))  # the edges into each node, cell by cell
    nodes = [strengths[start:end] for start, end in ends]
    assert likely == pytest.approx(sum(sum(sorted(own)[-2:]) for own in nodes), abs=1e-4)


@pytest.mark.parametrize("name", ["darts", "gdas"])
def test_a_supernet_without_a_mixture_is_refused(name: str, few_digits: DataSet) -> None:
    config = tiny(name, space="mobilenet-reduced", benchmark=None, network={})
    with pytest.raises(InvalidConfiguration, match=rf"{name.upper()}.* needs a supernet with the method forward_"):
        prepare(config, build_supernets(config, few_digits), 2, few_digits)


def test_gates_of_the_darts_space_run_one_operation_at_every_edge(few_digits: DataSet) -> None:
    _, training = on_the_darts_space(few_digits, name="gdas")
    batch = training.unaugmented.batch(0)
    path, weights = gdas.sample(training, 1.0)
    ones = list(torch.ones(len(path)))
    assert torch.allclose(training.gated_loss(batch, path, ones), training.mixed_loss(batch, weights), atol=1e-5)
