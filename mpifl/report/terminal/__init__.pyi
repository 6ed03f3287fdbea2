from .coefficient_table import (
    show_coefficients as show_coefficients,
)
from .following import (
    Follower as Follower,
    Look as Look,
    State as State,
    leaving_in_order as leaving_in_order,
)
from .stats_table import (
    show_stats as show_stats,
)
from .survival_table import (
    analysed as analysed,
    show_survival as show_survival,
)
from .watched_run import (
    watch_run as watch_run,
)
