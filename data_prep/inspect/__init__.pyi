from .columns_summary import held as held
from .inspection import inspect as inspect
from .overview import counted as counted
