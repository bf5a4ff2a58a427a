"""Profiles of job types: their speed, accuracy and overheads. Registers its tags with the codec."""

from reshape_profiles.tags import TAGS
from reshape_sidecar import codec

codec.register(__name__, TAGS)
