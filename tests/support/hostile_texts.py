"""Texts that somebody may put into a job record to have something else done with it than is meant.

Does: names them, each with a command in it that would leave a file behind. State: none.
"""

from __future__ import annotations

import os
from pathlib import Path

CANARY = Path(f"/tmp/reshape-canary-{os.getpid()}")
"""On the controller's machine; what is run in a pod would leave it in the pod's."""
CANARY_IN_POD = "/reshape/checkpoints/canary"
"""On the volume of the job, for a pod's own /tmp goes with it."""
_TOUCH = f"touch {CANARY} {CANARY_IN_POD}"

TEMPLATES = (
    *(f"{{{{ lookup('pipe', '{_TOUCH}') }}}}", "{{ 7 * 7 }}", "{% for x in y %}", "{# gone #}"),
    *("{%- raw -%}", "!unsafe x", "${jndi:ldap://x}", "$(RESHAPE_CHECKPOINTS)", "%(name)s", "%s"),
)
SHELL = (
    *(f"$({_TOUCH})", f"`{_TOUCH}`", f"; {_TOUCH}", f"&& {_TOUCH}", f"| {_TOUCH}", f"\n{_TOUCH}\n"),
    *(
        "$(HOME)",
        "$$(HOME)",
        "~",
        "*",
        "-x",
        "--",
        "--privileged",
        "--grace-s=0",
        "#",
        "\\",
        '"',
        "'",
    ),
)
PATHS = (
    *("../../etc/passwd", "..", "/..", "/", ".", "claim:..", "claim:a/../b", "claim:", "claim:A b"),
    *("hostPath:/", "/reshape/attempt", "/reshape/../etc", "//etc", "file:///etc/shadow"),
    *("http://169.254.169.254/", "/proc/self/environ", "a//b", "a/./b"),
)
DOCUMENTS = (
    *("a\nprivileged: true", "a\r\nb", "a: &x [*x]", "!!python/object/apply:os.system [id]", '"}}'),
    *(
        "{}",
        "[]",
        "null",
        "---",
        "...",
        "@",
        "<script>",
        '{"$gt":""}',
        "a.b.$where",
        "x,y=z",
        "k=v",
    ),
)
CHARACTERS = (
    *(
        "\u202egnp",
        "\x1b[31m",
        "\x7f",
        "\u2028",
        "\ufeff",
        "💥",
        "ﷺ" * 50,
        "é",
        "e\u0301",
        "x" * 5000,
    ),
    *(" ", "\t", "\x85", "a b", "", "-a", "a-", "A", "_", "x" * 64),
)
HOSTILE = (*TEMPLATES, *SHELL, *PATHS, *DOCUMENTS, *CHARACTERS)
NO_TEXTS = ("a\0b", "\0")
"""What no program takes as an argument: always refused."""
