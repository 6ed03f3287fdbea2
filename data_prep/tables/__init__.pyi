from .columns import (
    MISSING_LEVEL as MISSING_LEVEL,
    Columns as Columns,
    check_label as check_label,
    stated_columns as stated_columns,
)
from .distant_columns import Afar as Afar
from .drafting import (
    KINDS as KINDS,
    Drafted as Drafted,
    Learned as Learned,
    draft as draft,
)
from .encoding import Encoder as Encoder
from .files import (
    MAGIC as MAGIC,
    check_encoding as check_encoding,
    check_method as check_method,
    check_unpacked as check_unpacked,
    is_table as is_table,
    kind_of as kind_of,
    opened_zip as opened_zip,
    pieces as pieces,
    size_of_array as size_of_array,
    spec_beside as spec_beside,
)
from .persons import PARTED as PARTED, persons_in as persons_in
from .pooled_tables import (
    SiteTable as SiteTable,
    label_moments as label_moments,
    names_in as names_in,
    pooled as pooled,
)
from .site_specs import number_columns as number_columns
from .spec import TableSpec as TableSpec, read_spec as read_spec
from .surveying import is_needed as is_needed, learned_of_rows as learned_of_rows, survey as survey
from .table_column import Column as Column, Spelled as Spelled
from .unlabelled import UnlabelledTable as UnlabelledTable
from .values import (
    Changes as Changes,
    Moments as Moments,
    Rounding as Rounding,
    moments_of as moments_of,
    ordered as ordered,
    respelled as respelled,
    told_of as told_of,
)
