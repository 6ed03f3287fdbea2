"""What would hurt a training here, found before it does: the command `mpifl doctor`."""

from mpifl.doctor.examination import examine

__all__ = ["examine"]
