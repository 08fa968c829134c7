"""The stored classes are those that the symbolic keys give."""

from harness.components.discovery import component
from harness.components.registries import SPACES

table = component("spaces.nasbench201.class_table")


def test_the_stored_classes_are_the_computed_ones() -> None:
    space = SPACES.get("nasbench201")()
    assert list(table.ALL) == list(space)
    for kind, numbers in table.computed().items():
        assert list(table.stored(kind).values()) == [table.ALL[number] for number in numbers.tolist()]
    assert space.network_class(table.ALL[-1]) == table.stored("network")[table.ALL[-1]]
    assert space.function_class(table.ALL[-1]) == table.stored("function")[table.ALL[-1]]
