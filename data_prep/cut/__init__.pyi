from .cut_columns import partition_columns as partition_columns
from .held_out import (
    with_untested as with_untested,
)
from .origin import (
    keeping as keeping,
    numbered as numbered,
    of_testing as of_testing,
    of_training as of_training,
    section_of as section_of,
    shard_of as shard_of,
)
from .partitioning import (
    WriteOptions as WriteOptions,
    partition as partition,
    room as room,
)
