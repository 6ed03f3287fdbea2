from .broadcast import (
    Undelivered as Undelivered,
    undelivered as undelivered,
)
from .disclosure import (
    OTHER as OTHER,
    KindsAlone as KindsAlone,
    Telling as Telling,
    first_of as first_of,
)
from .federation import (
    Federation as Federation,
)
