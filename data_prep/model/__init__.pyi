from .dataset import Cut as Cut, Dataset as Dataset
from .rows import (
    Alter as Alter,
    Rows as Rows,
    Together as Together,
    fields as fields,
    mapping_of as mapping_of,
    release as release,
)
