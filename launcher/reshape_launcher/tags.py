"""The tag of every value of this package that is stored or sent, and the class that has it now.

Does: map each tag to ``module:Class`` within the package, so that a class can move or get another
name without a change of what is stored. Tags do not change.
"""

from __future__ import annotations

TAGS = {
    "GroupFile": "local.groups:GroupFile",
    "HostShare": "spec:HostShare",
    "LaunchSpec": "spec:LaunchSpec",
}
