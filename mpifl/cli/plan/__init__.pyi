from .asked_plan import (
    asked_by as asked_by,
)
from .bill import (
    bill_of as bill_of,
    show_bill as show_bill,
)
from .measuring import (
    measure as measure,
)
from .planned_job import (
    planned as planned,
    show_plan as show_plan,
)
from .played_rounds import (
    play as play,
)
from .site_of_job import (
    budgets as budgets,
    check_site_of as check_site_of,
)
from .target_costs import (
    until_target as until_target,
)
