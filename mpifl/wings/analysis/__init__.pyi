from .analysis_wing import (
    wing as wing,
)
from .newton import (
    Newton as Newton,
)
from .tableone import (
    TableOne as TableOne,
)
