from .changed_rows import (
    changes_of as changes_of,
    changes_together as changes_together,
    factors_at as factors_at,
    noted_as as noted_as,
    with_notes as with_notes,
)
from .confounded import lone_levels as lone_levels
from .dataset import Cut as Cut, Dataset as Dataset
from .example_groups import KEEPS as KEEPS, Groups as Groups, Order as Order, renumbered as renumbered
from .float32_range import LARGEST as LARGEST, SMALLEST as SMALLEST, all_seen as all_seen, unseen as unseen
from .likely_codes import (
    codes_among as codes_among,
    codes_of_tables as codes_of_tables,
    codes_told as codes_told,
)
from .likely_mistakes import doubts as doubts, of_tokens as of_tokens
from .odd_numbers import (
    odd_among as odd_among,
    odd_told as odd_told,
    told_of_odd as told_of_odd,
    written as written,
)
from .other_units import spreads_told as spreads_told, units_told as units_told
from .outcome_shares import (
    affirms as affirms,
    inverted_told as inverted_told,
    negative_first as negative_first,
    paired as paired,
)
from .repeated_ids import ids_told as ids_told, share_ids as share_ids
from .rows import (
    Alter as Alter,
    Beside as Beside,
    Converted as Converted,
    Rows as Rows,
    blocks_at as blocks_at,
    fields as fields,
    mapping_of as mapping_of,
    padded_to as padded_to,
    ragged_arrays as ragged_arrays,
    release as release,
    row_bytes as row_bytes,
    together as together,
)
from .spreads import Spread as Spread, differ as differ, factor_told as factor_told
from .user_code_errors import blamed as blamed
