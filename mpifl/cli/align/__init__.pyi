from . import (
    align_server as align_server,
    curve as curve,
    ring as ring,
)
from .align_beats import (
    Stopped as Stopped,
)
from .align_party import (
    Means as Means,
    Party as Party,
    Table as Table,
)
from .align_server import (
    Aligned as Aligned,
    Comparer as Comparer,
)
from .keyed import (
    read_key as read_key,
)
from .terms import (
    Terms as Terms,
    read_terms as read_terms,
)
