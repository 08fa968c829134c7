"""What another process says of torch, its GPUs and Sacred: this process imports none of them and touches no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from harness.environment import DRIVER, gpu_names
from harness.work.diagnosis.finding import Findings, note, ok, problem
from harness.work.slots import VISIBLE

SCRIPT = """
import json, warnings
found = {"errors": {}, "said": []}
for name in ("torch", "torchvision", "sacred"):
    try:
        __import__(name)
    except BaseException as error:
        found["errors"][name] = f"{type(error).__name__}: {error}"
if "torch" not in found["errors"]:
    import torch
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found["usable"] = torch.cuda.is_available()
        found["names"] = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
    found["said"] = [str(one.message) for one in said]
    found["built_for"] = torch.version.cuda or torch.version.hip
print(json.dumps(found))
"""


@dataclass
class Probe:
    """The process; started at once, so that other checks run meanwhile."""

    limit: float
    """Seconds that it may take: a GPU that hangs would otherwise hang the check."""
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        command = [sys.executable, "-c", SCRIPT]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def findings(self) -> Findings:
        """What the process has said; waits for it."""
        try:
            out, err = self.process.communicate(timeout=self.limit)
            said: dict[str, Any] = json.loads(out.splitlines()[-1])
        except subprocess.TimeoutExpired:
            text = f"torch did not answer within {self.limit:.0f} s"
            yield problem("gpus", text, "look at `nvidia-smi` and the load of this machine; --wait gives it more time")
            return
        except (ValueError, IndexError):
            last = (err.strip().splitlines() or ["no message"])[-1]
            text = f"torch ended its process with status {self.process.returncode}: {last}"
            yield problem("torch", text, "pip install --force-reinstall torch torchvision")
            return
        finally:
            self.close()
        for name, error in said["errors"].items():
            setuptools = "pkg_resources" in error
            advice = "pip install 'setuptools<81'" if setuptools else f"pip install --force-reinstall {name}"
            yield problem(name, f"{name} does not import: {error}", advice)
        if "torch" not in said["errors"]:
            yield from _gpus(said)

    def close(self) -> None:
        """End the process if it is still there."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def _gpus(said: dict[str, Any]) -> Findings:
    driven, hidden = gpu_names(), os.environ.get(VISIBLE)
    if said["usable"]:
        names = ", ".join(said["names"])
        yield ok("gpus", f"{len(said['names'])}: {names}" + (f" ({VISIBLE}={hidden})" if hidden is not None else ""))
    elif not driven and not DRIVER.is_dir():
        yield note("gpus", "there is no GPU here; trials run on the CPU")
    elif hidden is not None and hidden.strip() in ("", "-1"):
        yield note("gpus", f"{VISIBLE}={hidden} hides all GPUs; trials run on the CPU", f"unset {VISIBLE} to use them")
    else:
        names = ", ".join(driven) or "no GPU"
        if said["built_for"] is None:
            reason, advice = "this torch is built for CPUs", "install a torch that is built for CUDA: see pytorch.org"
        else:
            reason = said["said"][0].splitlines()[0] if said["said"] else f"torch is built for {said['built_for']}"
            advice = "update the driver, or install a torch that is built for its version: see `nvidia-smi`"
        yield problem("gpus", f"the driver lists {names}, but torch cannot use it: {reason}", advice)
