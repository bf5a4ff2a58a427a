"""The GPU Coordinator: what decides, keeps and answers. Registers its tags with the codec."""

from reshape_controller.tags import TAGS
from reshape_sidecar import codec

codec.register(__name__, TAGS)
