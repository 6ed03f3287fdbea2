from . import (
    charts as charts,
    line_ends as line_ends,
)
from .charts import (
    figure as figure,
)
from .comparison_page import (
    compare_page as compare_page,
    write_best as write_best,
)
from .curves import (
    draw as draw,
)
from .live_page import (
    keep_report as keep_report,
)
from .markup import (
    Cell as Cell,
    check_page as check_page,
    sortable as sortable,
    write_page as write_page,
)
from .run_page import (
    write_report as write_report,
)
