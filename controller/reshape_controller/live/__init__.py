"""The live shell: a single writer around the engine, and the effects that it commands.

Holds the only clock, the store, the launcher and the SideCars' long polls. Never decides.
"""
