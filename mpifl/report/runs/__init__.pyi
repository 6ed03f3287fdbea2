from . import (
    chance as chance,
    curve_legends as curve_legends,
    units as units,
)
from .chance import (
    Difference as Difference,
)
from .compared_columns import (
    columns_of as columns_of,
    fitting as fitting,
    level_of as level_of,
    metrics_of as metrics_of,
    whose as whose,
)
from .compared_files import (
    Drawing as Drawing,
    Output as Output,
    as_rows as as_rows,
)
from .compared_runs import (
    briefly as briefly,
    common_target as common_target,
    compare_runs as compare_runs,
    read_runs as read_runs,
    runs_in as runs_in,
    show_run as show_run,
    to_target as to_target,
)
from .curve_legends import (
    legends as legends,
)
from .kept_job import (
    MORE as MORE,
    changed_by_force as changed_by_force,
    headline as headline,
    longer as longer,
    read_tables as read_tables,
    trains_alone as trains_alone,
)
from .next_commands import (
    again as again,
    command_of as command_of,
    continued as continued,
    free as free,
    lent as lent,
    member as member,
    shards_of as shards_of,
    show_next as show_next,
    spec_of as spec_of,
    trained as trained,
    with_model as with_model,
)
from .paired_settings import (
    cells_against as cells_against,
    held_to as held_to,
    named as named,
    words_against as words_against,
)
from .ranking_figure import (
    SERVER as SERVER,
    judged_by_all as judged_by_all,
)
from .run_summary import (
    A_RUN as A_RUN,
    PLAIN as PLAIN,
    TEST_ROWS as TEST_ROWS,
    Record as Record,
    Summary as Summary,
    read_run as read_run,
)
from .seeds import (
    Group as Group,
    groups as groups,
    labels as labels,
    of_several_shards as of_several_shards,
    settings as settings,
    varying as varying,
    why_not_ranked as why_not_ranked,
)
from .silo_data import (
    Held as Held,
    alike_told as alike_told,
    as_counted as as_counted,
    data as data,
    doubts as doubts,
    examples as examples,
    fit_doubt as fit_doubt,
    groups_told as groups_told,
    judging as judging,
    of_groups as of_groups,
    one_class as one_class,
    read_shards as read_shards,
    rests_on as rests_on,
    rows_left_out as rows_left_out,
    rows_of_rounds as rows_of_rounds,
    trained_on as trained_on,
)
from .standings import (
    HEADS as HEADS,
    Rival as Rival,
    Standing as Standing,
    by_other_rows as by_other_rows,
    corrected as corrected,
    ranked_by as ranked_by,
    rivals as rivals,
    standings_of as standings_of,
    standings_of_groups as standings_of_groups,
    verdict as verdict,
)
from .units import (
    seconds as seconds,
)
