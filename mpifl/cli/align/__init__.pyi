from . import (
    align_server as align_server,
    curve as curve,
    ring as ring,
)
from .align_party import (
    AlignParty as AlignParty,
    AlignTable as AlignTable,
    Means as Means,
)
from .align_phases import (
    AlignmentStopped as AlignmentStopped,
)
from .align_server import (
    Aligned as Aligned,
    Comparer as Comparer,
)
from .keyed import (
    read_key as read_key,
)
from .terms import (
    AlignTerms as AlignTerms,
    read_terms as read_terms,
)
