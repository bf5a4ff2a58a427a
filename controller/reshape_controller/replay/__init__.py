"""Replay: the engine and the policies of the live controller, in virtual time.

It holds workloads, a cluster model that answers the engine's commands, metrics, bounds and figures.
Never: import ``live`` or a concrete policy, or be imported by the core, scheduling or policies.
"""
