from .dataset import Cut as Cut, Dataset as Dataset
from .rows import Alter as Alter, Rows as Rows, mapping_of as mapping_of, release as release
