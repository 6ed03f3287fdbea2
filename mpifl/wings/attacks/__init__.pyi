from .attack_fitting import (
    Fitting as Fitting,
)
from .attack_wing import (
    wing as wing,
)
from .attacks import (
    Lying as Lying,
)
from .backdoor import (
    SUCCESS as SUCCESS,
    Backdoor as Backdoor,
)
from .colluding_attacks import (
    FORGERIES as FORGERIES,
    Forging as Forging,
)
