from .flags import only as only, with_scheme_options as with_scheme_options
from .holding_options import (
    Group as Group,
    Keep as Keep,
    Order as Order,
    Stratify as Stratify,
    TestLast as TestLast,
    check_order as check_order,
)
from .site_commands import app as app
from .sites_command import sites as sites
from .source_flags import (
    as_typed as as_typed,
    with_source_options as with_source_options,
    words_of as words_of,
)
