"""``reshape replay``, ``compare`` and ``workload``: in virtual time, and against a real daemon."""
