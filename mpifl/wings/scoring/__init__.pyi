from .scoring_wing import (
    wing as wing,
)
