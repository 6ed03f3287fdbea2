from .handed_over import (
    HandedOver as HandedOver,
    check_singles as check_singles,
)
from .single_updates import (
    Singles as Singles,
    single_named as single_named,
)
