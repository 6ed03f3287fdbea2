-- mpifl as a module of Lmod. Copy it to SOMEWHERE/mpifl/VERSION.lua, where `module use SOMEWHERE` leads; `here` is
-- the venv in which mpifl is installed, beside the MPI of the module that it depends on.
help([[Federated learning over MPI. `mpifl doctor --ranks 2` looks whether all fits; `mpifl demo` tries it.]])
whatis("Name: mpifl")
whatis("Version: " .. myModuleVersion())
whatis("Description: federated learning over MPI")

local here = os.getenv("MPIFL_VENV") or pathJoin("/opt/mpifl", myModuleVersion())

-- depends_on("openmpi")                          -- as your site calls it
conflict("mpifl")
prepend_path("PATH", pathJoin(here, "bin"))
-- setenv("MPI4PY_LIBMPI", "/path/to/libmpi.so")  -- where several MPI libraries are found
