"""The matrix of `mpi_libraries.sh`: the same trainings under each MPI library, as a user would start them."""
