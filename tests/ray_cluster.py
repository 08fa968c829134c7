"""A Ray cluster of the tests' own, bound to loopback, with nodes that can be killed.

It lives in a process of its own, with a temporary folder of its own: tests that run side by side do not meet.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import Any

TRIES = 5
"""Ray gives a node 30 seconds to come up, and no more: too little on a machine that is very busy."""

MEMORY = 80 * 2**20
"""Bytes of a node's object store."""

# Ray takes the machine's own address for 127.0.0.1 unless it believes that it runs where clusters are not supported.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_memory_monitor_refresh_ms": "0"}


class RayCluster:
    """A cluster of so many nodes with so many CPUs each."""

    def __init__(self, nodes: int, cpus: int = 1) -> None:
        self._folder = tempfile.mkdtemp(prefix="r", dir="/tmp")  # paths of sockets are at most 107 characters long
        self.environment = {**os.environ, **LOOPBACK, "RAY_TMPDIR": self._folder, "OMP_NUM_THREADS": "1"}
        self.environment |= {"RAY_USAGE_STATS_ENABLED": "0"}
        self.environment.pop("HARNESS_MONGO", None)
        self.environment.pop("HARNESS_STORE", None)
        for left in reversed(range(TRIES)):
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.ray_cluster", str(nodes), str(cpus)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=self.environment,
            )
            try:
                self.address = self._answer()
                break
            except AssertionError:
                if not left:
                    raise

    def kill_node(self) -> None:
        """End the last node as a power failure would."""
        assert self._process.stdin is not None
        self._process.stdin.write("kill\n")
        self._process.stdin.flush()
        assert self._answer() == "killed"

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("! "):
                return line[2:].strip()
        raise AssertionError(f"the Ray cluster ended with {self._process.wait()}")

    def __enter__(self) -> RayCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def serve(nodes: int, cpus: int) -> None:
    """Start the cluster, tell its address, and do what is asked until nothing more can be."""
    from ray.cluster_utils import Cluster

    options: dict[str, Any] = {"num_cpus": cpus, "node_ip_address": "127.0.0.1", "object_store_memory": MEMORY}
    cluster: Any = Cluster(initialize_head=True, head_node_args={**options, "include_dashboard": False})
    others = [cluster.add_node(**options) for _ in range(nodes - 1)]
    print(f"! {cluster.address}", flush=True)
    for line in sys.stdin:
        if line.strip() == "kill":
            cluster.remove_node(others.pop(), allow_graceful=False)
            print("! killed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
