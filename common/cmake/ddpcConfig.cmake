# find_package(ddpc [COMPONENTS static]): ddp.c as it was installed.
#
#   ddpc::ddpc          the shared library
#   ddpc::ddpc_static   with the component `static`, which needs the development packages of zlib, cJSON, OpenBLAS and
#                       OpenSSL, and of the build's MPI
include(CMakeFindDependencyMacro)
include(${CMAKE_CURRENT_LIST_DIR}/ddpcTargets.cmake)
foreach(component IN LISTS ddpc_FIND_COMPONENTS)
  set(ddpc_${component}_FOUND FALSE)
  if(component STREQUAL "static")
    set(ddpc_static_FOUND TRUE)
  elseif(ddpc_FIND_REQUIRED_${component})
    set(ddpc_FOUND FALSE)
    set(ddpc_NOT_FOUND_MESSAGE "ddpc has no component ${component}: there is static")
  endif()
endforeach()
if("static" IN_LIST ddpc_FIND_COMPONENTS)
  find_dependency(Threads)
  find_dependency(ZLIB)
  find_dependency(OpenSSL COMPONENTS Crypto)
  if("@HAVE_MPI@") # of several, the MPI that the libraries were built with
    set(MPI_C_COMPILER "@MPI_C_COMPILER@" CACHE FILEPATH "The compiler of ddpc's MPI")
    find_dependency(MPI COMPONENTS C)
  endif()
  find_dependency(PkgConfig)
  pkg_check_modules(CJSON REQUIRED IMPORTED_TARGET libcjson)
  pkg_search_module(OPENBLAS REQUIRED IMPORTED_TARGET openblas-pthread openblas)
  include(${CMAKE_CURRENT_LIST_DIR}/ddpcStaticTargets.cmake)
endif()
