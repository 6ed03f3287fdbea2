from .flags import with_scheme_options as with_scheme_options
from .holding_options import (
    Group as Group,
    Order as Order,
    Stratify as Stratify,
    TestLast as TestLast,
    check_order as check_order,
)
from .site_commands import app as app
from .sites_command import sites as sites
