"""The daemon: ``up`` and ``doctor``, and what they are put together from."""
