"""What users may write: a pydantic model for each kind of resource, with every rule that concerns one object alone."""

from .base import Model
from .neighbors import Neighbor
from .overlays import L2Vni, L3Passthrough, L3Vni, RawFrrConfig
from .selector import LabelSelector
from .sessions import HostSession
from .underlay import Underlay

__all__ = [
    "HostSession",
    "L2Vni",
    "L3Passthrough",
    "L3Vni",
    "LabelSelector",
    "Model",
    "Neighbor",
    "RawFrrConfig",
    "Underlay",
]
