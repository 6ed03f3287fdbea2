from .changes import Changes as Changes, told_of as told_of
from .columns import Columns as Columns, check_label as check_label, stated_columns as stated_columns
from .drafting import KINDS as KINDS, Learned as Learned, draft as draft, label_moments as label_moments
from .encoding import Encoder as Encoder
from .opening import check_encoding as check_encoding, kind_of as kind_of, spec_beside as spec_beside
from .piece import ordered as ordered
from .spec import TableSpec as TableSpec, read_spec as read_spec
from .surveying import survey as survey
from .unpacking import (
    MAGIC as MAGIC,
    check_method as check_method,
    check_unpacked as check_unpacked,
    opened_zip as opened_zip,
    size_of_array as size_of_array,
)
