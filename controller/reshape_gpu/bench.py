"""Replays in a notebook: ``from reshape_gpu import bench`` (docs/replay.md, In Python).

Does: give ``reshape_controller.bench`` its public name. Importing the client does not import this.
"""

from reshape_controller.bench import FIGURES, BenchError, Picture, Replays, replay

__all__ = ["FIGURES", "BenchError", "Picture", "Replays", "replay"]
