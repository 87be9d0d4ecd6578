# package.cmake: cpack -G DEB makes Debian packages of an installation; included by install.cmake.
#
# | package     | component | contents                                                                            |
# |-------------|-----------|-------------------------------------------------------------------------------------|
# | ddpc        | programs  | the programs, their manual pages, data, the shared library                          |
# | libddpc-dev | dev       | headers, archive, CMake's and pkg-config's files                                    |
# | ddpc-cuda   | cuda      | what the programs load for GPUs; NVIDIA's libraries come from elsewhere             |
#
# Configure with -DCMAKE_INSTALL_PREFIX=/usr: only then does CMake choose Debian's folder of libraries. A package names
# who answers for it, so who makes one gives -DCPACK_PACKAGE_CONTACT='Name <mail>'; without it cpack makes none.
# tests/library/packages.sh builds, checks and installs them.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_CONTACT "" CACHE STRING "Maintainer of the packages: Name <mail>; cpack needs it")
set(CPACK_PACKAGE_NAME ddpc)
set(CPACK_COMPONENTS_ALL programs dev)
if(HAVE_CUDA)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
# Shared libraries: a dpkg trigger runs ldconfig (CMake would write scripts), and shlibs lists the dependency for other
# packages.
set(control ${PROJECT_BINARY_DIR}/debian)
file(WRITE ${control}/triggers "activate-noawait ldconfig\n")
file(WRITE ${control}/shlibs "libddpc ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} ddpc (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_CONTROL_EXTRA "${control}/triggers;${control}/shlibs")
set(CPACK_DEBIAN_CUDA_PACKAGE_CONTROL_EXTRA ${control}/triggers)
set(same "(= ${PROJECT_VERSION}-1)")

set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME ddpc)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_DEPENDS python3)
set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION "Programs that train with either, with PyTorch's semantics and equal bits:\n\
one process with a thread per device, or a process per device with an\n\
overlapped all-reduce. With a launcher, and the library.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libddpc-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
    "ddpc ${same}, libc6-dev, zlib1g-dev, libssl-dev, libcjson-dev, libopenblas-pthread-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Headers and archive of the library that ddpc has, files for CMake and\n\
pkg-config, and its manual page.")

set(CPACK_DEBIAN_CUDA_PACKAGE_NAME ddpc-cuda)
set(CPACK_DEBIAN_CUDA_PACKAGE_SECTION contrib/science)
set(CPACK_DEBIAN_CUDA_PACKAGE_SHLIBDEPS OFF) # NVIDIA's libraries are of no Debian package
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "ddpc ${same}, libc6")
set(CPACK_COMPONENT_CUDA_DESCRIPTION "What the programs of ddpc load for --device cuda. It needs NVIDIA's driver,\n\
CUDA (cudart, cuBLASLt), cuDNN 9 and NCCL 2 in the loader's path.")

# Debian's compressed manual pages, changelogs and copyright files.
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/debian_files.cmake)
set(CPACK_DDPC_SOURCE ${PROJECT_SOURCE_DIR})
include(CPack)
