"""How much memory one contestant takes for a node: `python benchmarks/memory.py NAME NODES` prints bytes.

A process of its own, so that nothing else moves its resident memory.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

from peers import CONTESTANTS
from workloads import mixed_graph, mixed_leaves, mixed_size

STATISTICS = Path("/proc/self/statm")  # Linux


def bytes_a_node(name: str, nodes: int) -> float:
    """Measured in a process of its own."""
    command = [sys.executable, __file__, name, str(nodes)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(name: str, nodes: int) -> float:
    """The growth of this process while it builds and holds a graph."""
    peer = CONTESTANTS[name]()
    leaves = mixed_leaves(peer, nodes)
    gc.collect()
    gc.disable()
    before = _resident()
    graph = mixed_graph(peer, leaves)
    growth = _resident() - before
    del graph
    return growth / mixed_size(leaves)


def _resident() -> int:
    return int(STATISTICS.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    print(measure(sys.argv[1], int(sys.argv[2])))
