"""The light hook of a PyTorch program that is one process: it notices a trainer, and changes none.

Its folder is in the program's PYTHONPATH, so each Python of it imports ``sitecustomize``.
"""
