from .partitioning import WriteOptions as WriteOptions, partition as partition, room as room
from .vertical import partition_columns as partition_columns
