from . import (
    fits as fits,
    outline as outline,
)
from .fits import (
    why_not as why_not,
)
from .job import (
    Job as Job,
    check_as_read as check_as_read,
    check_job as check_job,
    read_job as read_job,
    read_kept as read_kept,
)
from .judged_job import (
    judged_otherwise as judged_otherwise,
)
from .outline import (
    HARMLESS as HARMLESS,
    OF_SUMS as OF_SUMS,
    Outline as Outline,
    differing_keys as differing_keys,
    flat as flat,
    read_outline as read_outline,
)
from .private_checks import (
    check_private_data as check_private_data,
    is_silo_level as is_silo_level,
    why_no_statistics as why_no_statistics,
)
from .split_checks import (
    check_bottom as check_bottom,
    check_vertical_data as check_vertical_data,
)
from .uncalled_methods import (
    uncalled as uncalled,
)
