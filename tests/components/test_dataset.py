"""What a data set adds to the settings of networks, and when that is known."""

from __future__ import annotations

from pathlib import Path

from harness.components.dataset import inputs_of
from tests.toy import user_folder

DECLARED = '''
from harness.components.registries import DATASETS
from harness.errors import DataError


class Large:
    """A data set that says what its images are without reading them."""

    inputs = {"classes": 1000, "image_channels": 3, "image_size": 224}

    def __call__(self):
        raise DataError("not here")


DATASETS.register("large")(Large())
'''


def test_inputs_are_those_of_the_images(tmp_path: Path) -> None:
    with user_folder(tmp_path, {"spaces/large.py": DECLARED}):
        assert inputs_of("digits") == {"classes": 10, "image_channels": 1, "image_size": 8}
        assert inputs_of("cifar10") is None  # its files are not here
        assert inputs_of("large") == {"classes": 1000, "image_channels": 3, "image_size": 224}
