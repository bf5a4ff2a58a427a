"""What is known of job types before they run. Registers its tags with the codec."""

from reshape_profiles.tags import TAGS
from reshape_sidecar import codec

codec.register(__name__, TAGS)
