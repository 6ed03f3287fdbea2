from .curves import (
    AXES as AXES,
    Curve as Curve,
    GroupLook as GroupLook,
    curve as curve,
    group_looks as group_looks,
    line_look as line_look,
)
from .fitted_names import (
    put_legend as put_legend,
    saying_once as saying_once,
)
from .picture import (
    check_picture as check_picture,
    draw as draw,
    pyplot_of as pyplot_of,
)
