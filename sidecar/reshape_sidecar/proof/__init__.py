"""The proof that a restart carries: one step of training in two processes, and if it is the same.

A process that saves for a stop makes one more real step and leaves in it: of that step only figures
are kept, beside the checkpoint. The process that goes on takes the same figures of its first step
and compares them. So Reshape need not know what state a script has. Standard library only; a
framework's front end takes the figures.
"""
