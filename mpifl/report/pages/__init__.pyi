from .compared_silos import (
    drawn_around_zero as drawn_around_zero,
)
from .comparison_page import (
    compare_page as compare_page,
    write_best as write_best,
)
from .live_page import (
    keep_report as keep_report,
)
from .run_page import (
    write_report as write_report,
)
from .stats_page import (
    figures_of_stats as figures_of_stats,
    figures_of_survival as figures_of_survival,
    page_of_stats as page_of_stats,
    page_of_survival as page_of_survival,
)
