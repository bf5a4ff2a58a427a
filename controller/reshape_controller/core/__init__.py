"""The engine and its values: events and plans in, commands out.

Never here: a clock, randomness, I/O, logging, a framework. Time is an argument. The engine is the
same when it runs live and when a log is fed to it again.
"""
