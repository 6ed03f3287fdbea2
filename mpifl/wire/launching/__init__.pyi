from . import (
    deaths as deaths,
    launcher as launcher,
    libraries as libraries,
)
from .deaths import (
    DeathWatch as DeathWatch,
    renumbered as renumbered,
    survivable as survivable,
    survivors as survivors,
)
from .joining import (
    abort_world as abort_world,
    die as die,
    leave as leave,
    library as library,
    met as met,
    world as world,
)
from .launcher import (
    last_word as last_word,
    leave_code as leave_code,
    own_launcher as own_launcher,
    started_by as started_by,
)
from .libraries import (
    chosen_launcher as chosen_launcher,
)
from .mpi_facts import (
    MPIFacts as MPIFacts,
    facts as facts,
)
from .trial import (
    check_launch as check_launch,
)
