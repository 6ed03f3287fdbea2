from .arrow import library as library
from .delimiters import header_of as header_of, separated as separated
from .folders import is_table as is_table, parts_of as parts_of
from .keeping import Kept as Kept
from .opening import (
    check_encoding as check_encoding,
    kind_of as kind_of,
    spec_beside as spec_beside,
)
from .parquet_table import names_of_parquet as names_of_parquet
from .stream import column_names as column_names, pieces as pieces
from .unpacking import (
    MAGIC as MAGIC,
    check_method as check_method,
    check_unpacked as check_unpacked,
    opened_zip as opened_zip,
    size_of_array as size_of_array,
)
