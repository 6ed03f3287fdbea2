from . import (
    mlflow as mlflow,
)
from .configured import (
    check_tracking as check_tracking,
    observers as observers,
)
from .console import (
    PLAIN as PLAIN,
    figures_of as figures_of,
    on_terminal as on_terminal,
    print_table as print_table,
    wide_console as wide_console,
)
from .observer import (
    HELD_OUT as HELD_OUT,
    TOGETHER as TOGETHER,
    Observer as Observer,
    Record as Record,
    judged as judged,
    numbers as numbers,
    reached as reached,
    worst_silo as worst_silo,
)
from .observer_group import (
    Observers as Observers,
)
from .progress import (
    Progress as Progress,
    at_end as at_end,
    best_round as best_round,
    never_moved as never_moved,
    stopped_early as stopped_early,
)
from .site_figures import (
    away_in as away_in,
    sites_of as sites_of,
)
