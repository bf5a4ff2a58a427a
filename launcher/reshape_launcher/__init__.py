"""Launchers: they start and end containers. Registers its tags with the codec."""

from reshape_launcher.tags import TAGS
from reshape_sidecar import codec

codec.register(__name__, TAGS)
