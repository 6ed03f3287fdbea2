from . import (
    diverged as diverged,
)
from .collapse_events import (
    collapses as collapses,
    to_do as to_do,
    warnings_of as warnings_of,
)
from .diverged import (
    NO_MODEL as NO_MODEL,
    Event as Event,
    below_guessing as below_guessing,
    cause as cause,
    guesses_beat as guesses_beat,
    model_told as model_told,
    of_no_use as of_no_use,
    weak_answers as weak_answers,
)
from .fall_events import (
    MOST_NAMED as MOST_NAMED,
    all_drawn as all_drawn,
    asked as asked,
    deepest_fall as deepest_fall,
    falls as falls,
    last_values as last_values,
    moves as moves,
    none_fell as none_fell,
    points_of as points_of,
    rule as rule,
    silo_falls as silo_falls,
    told_falls as told_falls,
)
from .left_out import (
    missed as missed,
    suspected as suspected,
    together as together,
)
from .run_steps import (
    lower_rate as lower_rate,
    next_figure as next_figure,
    next_of_run as next_of_run,
)
from .settings_steps import (
    next_of_settings as next_of_settings,
)
from .silo_gains import (
    PAIRED as PAIRED,
    UNTOLD as UNTOLD,
    Gain as Gain,
    compared as compared,
    gain_unknown as gain_unknown,
    gained as gained,
    gains as gains,
    gains_over as gains_over,
    held_against as held_against,
    values as values,
    without_alike as without_alike,
)
