from .behind import (
    answered as answered,
    shared as shared,
)
from .scoring_wing import (
    wing as wing,
)
