from . import (
    hdf5_process as hdf5_process,
    hdf5_reading as hdf5_reading,
)
from .hdf5_reading import (
    Opened as Opened,
    Stamp as Stamp,
    StoredArray as StoredArray,
    check_file as check_file,
    opened as opened,
    stamp_of as stamp_of,
    start_parser as start_parser,
)
from .hdf5_writing import (
    WrittenFile as WrittenFile,
    chunk_rows as chunk_rows,
    make_room as make_room,
)
