from . import (
    crew_gradients as crew_gradients,
)
from .crew_gradients import (
    Follower as Follower,
)
from .crew_training import (
    followed as followed,
)
from .crew_wing import (
    wing as wing,
)
from .crew_world import (
    Crewed as Crewed,
    why_no_crews as why_no_crews,
)
