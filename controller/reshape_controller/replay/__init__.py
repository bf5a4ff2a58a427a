"""Replay: the engine and the policies of the live controller, in virtual time.

Does: workloads, a cluster model that answers the engine's commands, metrics, bounds, figures.
Never: decides; imports ``live`` or a concrete policy; is imported by what decides.
"""
