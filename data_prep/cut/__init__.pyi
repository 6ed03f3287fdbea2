from .partitioning import Manner as Manner, partition as partition, room as room
from .vertical import partition_columns as partition_columns
