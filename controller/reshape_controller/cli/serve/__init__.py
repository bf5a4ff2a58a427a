"""The daemon: ``up`` and ``doctor``, and their parts."""
