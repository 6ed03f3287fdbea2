from .answer_plots import (
    AnswerChart as AnswerChart,
    Confusion as Confusion,
    Reach as Reach,
    draw_answers as draw_answers,
)
from .curves import (
    AXES as AXES,
    Curve as Curve,
    GroupLook as GroupLook,
    curve as curve,
    group_looks as group_looks,
    lie_above as lie_above,
    lying as lying,
)
from .picture import (
    check_picture as check_picture,
    draw as draw,
)
