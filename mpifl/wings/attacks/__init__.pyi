from .attack_wing import (
    wing as wing,
)
from .colluding_attacks import (
    FORGERIES as FORGERIES,
)
