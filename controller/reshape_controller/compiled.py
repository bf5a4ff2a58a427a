"""Whether the deciding code that runs here is compiled.

Does: looks where the engine was loaded from; a compiled wheel has all of that code compiled.
Never: makes a difference to what is decided. State: none.
"""

from __future__ import annotations

from reshape_controller.core import engine


def is_compiled() -> bool:
    """True for an installed compiled wheel; False for the sources and the usual wheel."""
    return not str(engine.__file__).endswith(".py")


def text() -> str:
    """The same in a word."""
    return "compiled" if is_compiled() else "interpreted"
