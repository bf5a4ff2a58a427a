"""The live shell: a single writer around the engine, and the effects that it commands.

It holds the clock, the store, the launcher and the SideCars' long polls. Policies decide, not it.
"""
