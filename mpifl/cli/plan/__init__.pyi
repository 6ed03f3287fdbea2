from .plan_commands import (
    plan as plan,
)
from .planned_job import (
    planned as planned,
    show_plan as show_plan,
)
from .played_rounds import (
    Played as Played,
    play as play,
)
from .profile import (
    measure as measure,
)
