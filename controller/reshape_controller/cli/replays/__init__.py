"""``reshape replay``, ``compare`` and ``workload``: in virtual time and on a real daemon."""
