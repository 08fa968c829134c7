"""Downloads by torchvision, only on request: its addresses, checksums and download function."""

from __future__ import annotations

from pathlib import Path

from harness.data.places import data_folder
from harness.errors import DataError

FASHION = "fashion-mnist"
CLASSES = {"cifar10": "CIFAR10", "cifar10-16": "CIFAR10", "cifar100": "CIFAR100", FASHION: "FashionMNIST"}
"""The torchvision class of each data set."""


def download(name: str) -> None:
    """Download a data set's files into the data folder. Raises `DataError` on failure."""
    if name not in CLASSES:
        raise DataError(f"data set {name} cannot be downloaded, only {', '.join(CLASSES)}")
    from torchvision import datasets
    from torchvision.datasets.utils import download_and_extract_archive

    known = getattr(datasets, CLASSES[name])
    folder = data_folder()
    if name == FASHION:
        folder = folder / "FashionMNIST" / "raw"
        files = [(f"{known.mirrors[0]}{file}", file, md5) for file, md5 in known.resources]
    else:
        files = [(known.url, known.filename, known.tgz_md5)]
    for address, file, md5 in files:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            download_and_extract_archive(address, str(folder), filename=file, md5=md5)
        except Exception as error:  # network, archive or checksum errors
            raise DataError(_refused(name, address, folder, error)) from error


def _refused(name: str, address: str, folder: Path, error: Exception) -> str:
    reason = " ".join(str(getattr(error, "reason", "") or error or type(error).__name__).split())
    return f"cannot download {name} from {address} ({reason}); get it another way and unpack it into {folder}"
