from .cut_columns import partition_columns as partition_columns
from .partitioning import (
    WriteOptions as WriteOptions,
    numbered as numbered,
    of_testing as of_testing,
    of_training as of_training,
    partition as partition,
    room as room,
    section_of as section_of,
    shard_of as shard_of,
)
