"""The tag of every value of this package that is stored or sent, and the class that has it now.

Does: maps each tag to ``module:Class`` within the package, so that a class can be moved or renamed
without a change of what is stored. Never: imports a class, or changes a tag. State: none.
"""

from __future__ import annotations

TAGS = {
    "LaunchSpec": "spec:LaunchSpec",
}
