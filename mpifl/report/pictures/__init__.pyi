from .answer_plots import (
    AnswerChart as AnswerChart,
    Confusion as Confusion,
    Reach as Reach,
    draw_answers as draw_answers,
)
from .curves import (
    AXES as AXES,
    curve as curve,
    group_looks as group_looks,
    lie_above as lie_above,
    lying as lying,
)
from .fit_table import (
    REFERENCE as REFERENCE,
    coefficients as coefficients,
    fit_heads as fit_heads,
    fit_of as fit_of,
    fit_rows as fit_rows,
    said_of_fit as said_of_fit,
    unsettled as unsettled,
)
from .picture import (
    check_picture as check_picture,
    draw as draw,
)
