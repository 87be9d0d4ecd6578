# mpi.cmake: finds MPI, for DDP between the CPUs of several machines. Included once by the top CMakeLists.txt.
#
#   -DWITH_MPI=AUTO|ON|OFF         AUTO: with MPI if it is installed, which is printed; ON: an error if it is missing
#   -DMPI_C_COMPILER=mpicc.mpich   selects one of several installed MPIs; one per build
#
# Sets HAVE_MPI (TRUE or FALSE), MPI_KIND ("Open MPI" or "MPICH") and the target MPI::MPI_C.
set(WITH_MPI AUTO CACHE STRING "DDP between machines: AUTO, ON or OFF")
if(NOT WITH_MPI MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "WITH_MPI=${WITH_MPI}: expected AUTO, ON or OFF")
endif()
set(HAVE_MPI FALSE)
set(MPI_KIND "")
if(WITH_MPI STREQUAL "OFF")
  message(STATUS "MPI: no (WITH_MPI is OFF)")
  return()
endif()
find_package(MPI QUIET COMPONENTS C)
if(MPI_C_FOUND)
  # mpi.h identifies Open MPI and MPICH. Other MPIs are untested.
  include(CheckSymbolExists)
  set(CMAKE_REQUIRED_LIBRARIES MPI::MPI_C)
  check_symbol_exists(OPEN_MPI mpi.h MPI_IS_OPEN_MPI)
  check_symbol_exists(MPICH mpi.h MPI_IS_MPICH)
  unset(CMAKE_REQUIRED_LIBRARIES)
  if(MPI_IS_OPEN_MPI)
    set(MPI_KIND "Open MPI")
  elseif(MPI_IS_MPICH)
    set(MPI_KIND "MPICH")
  endif()
endif()
if(MPI_KIND)
  set(HAVE_MPI TRUE)
  message(STATUS "MPI: ${MPI_KIND} (${MPI_C_COMPILER})")
elseif(WITH_MPI STREQUAL "ON")
  message(FATAL_ERROR "WITH_MPI=ON, but neither Open MPI nor MPICH was found")
else()
  message(STATUS "MPI: no (neither Open MPI nor MPICH was found)")
endif()
