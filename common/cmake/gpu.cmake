# gpu.cmake: which of CUDA, NCCL and cuDNN this build has. Included once by the top CMakeLists.txt,
# before there is any target (CUDA has to be enabled first).
#
#   -DWITH_CUDA=AUTO|ON|OFF|EMULATED    EMULATED: the same sources, carried out on the CPU by
#                                       tests/emulator, NCCL and cuDNN with them; for the
#                                       tests
#   -DWITH_NCCL=AUTO|ON|OFF, -DWITH_CUDNN=AUTO|ON|OFF
#
# AUTO takes what is there and says so; ON fails when it is not there. Leaves behind HAVE_CUDA,
# HAVE_NCCL, HAVE_CUDNN (TRUE or FALSE), GPU_DRIVER (the library that counts the GPUs),
# the functions gpu_sources, gpu_module and gpu_modules_of, and the targets `ddpc_gpu` (headers and
# libraries for all that calls CUDA), NCCL::nccl and CUDNN::cudnn.
include(wheel)

set(WITH_CUDA AUTO CACHE STRING "GPUs: AUTO, ON, OFF or EMULATED")
set(WITH_NCCL AUTO CACHE STRING "DDP between GPUs: AUTO, ON or OFF")
set(WITH_CUDNN AUTO CACHE STRING "Convolutions on GPUs by cuDNN: AUTO, ON or OFF")
if(NOT WITH_CUDA MATCHES "^(AUTO|ON|OFF|EMULATED)$")
  message(FATAL_ERROR "WITH_CUDA=${WITH_CUDA}: expected AUTO, ON, OFF or EMULATED")
endif()
foreach(library NCCL CUDNN)
  set(HAVE_${library} FALSE)
  if(NOT WITH_${library} MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "WITH_${library}=${WITH_${library}}: expected AUTO, ON or OFF")
  endif()
endforeach()
set(HAVE_CUDA FALSE)
set(GPU_DRIVER libcuda.so.1)
set(gpu_found "")
add_library(ddpc_gpu INTERFACE)

# Reports a missing library. A library that WITH_... requires (ON) ends the configuration.
function(gpu_without library reason)
  if(WITH_${library} STREQUAL ON)
    message(FATAL_ERROR "WITH_${library}=ON, but ${reason}")
  endif()
  set(gpu_found "${gpu_found}, no ${library} (${reason})" PARENT_SCOPE)
endfunction()

# gpu_sources(target file...): sources of a target, kernels (.cu) among them.
function(gpu_sources target)
  target_sources(${target} PRIVATE ${ARGN})
  if(WITH_CUDA STREQUAL "EMULATED")
    list(FILTER ARGN INCLUDE REGEX "\\.cu$")
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX
                                COMPILE_OPTIONS "${EMULATED_KERNEL_OPTIONS}")
  endif()
endfunction()

# gpu_module(target file...): a shared object that calls CUDA; programs load it when they open a GPU
# (common/base/shared_object.h). It contains its own copy of our libraries.
function(gpu_module target)
  add_library(${target} SHARED)
  gpu_sources(${target} ${ARGN})
  target_link_libraries(${target} PUBLIC ddpc_gpu)
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL -Wl,-Bsymbolic -Wl,--no-undefined)
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
                                             INSTALL_RPATH "$ORIGIN;${CMAKE_BUILD_RPATH}")
endfunction()

# gpu_modules_of(program): the program may load the GPU modules, so they are built with it.
function(gpu_modules_of program)
  foreach(module ddpc_cuda ddpc_nccl)
    if((module STREQUAL ddpc_cuda AND HAVE_CUDA) OR (module STREQUAL ddpc_nccl AND HAVE_NCCL))
      add_dependencies(${program} ${module})
    endif()
  endforeach()
endfunction()

# ---- the compiler -------------------------------------------------------------------------------
set(gpu_missing "")
if(WITH_CUDA STREQUAL "EMULATED")
  enable_language(CXX)
  set(CMAKE_CXX_STANDARD 17)
  set(CMAKE_CXX_STANDARD_REQUIRED ON)
  set(CMAKE_CXX_EXTENSIONS OFF)
elseif(WITH_CUDA STREQUAL "OFF")
  set(gpu_missing "WITH_CUDA is OFF")
elseif(SANITIZE)
  set(gpu_missing "the sanitizers are for the CPU")
else()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    wheel_folder(gpu_wheel nvidia.cu13)
    find_program(NVCC nvcc PATHS /usr/local/cuda/bin "${gpu_wheel}/bin")
    mark_as_advanced(NVCC)
    if(NVCC)
      set(ENV{CUDACXX} "${NVCC}")
    endif()
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    execute_process(COMMAND nvidia-smi -L OUTPUT_VARIABLE gpu_cards RESULT_VARIABLE gpu_failed
                    ERROR_QUIET)
    if(gpu_failed EQUAL 0 AND gpu_cards MATCHES "GPU 0:")
      set(CMAKE_CUDA_ARCHITECTURES native CACHE STRING "What the kernels are compiled for")
    else()
      set(CMAKE_CUDA_ARCHITECTURES "75;80;90" CACHE STRING "What the kernels are compiled for")
    endif()
  endif()
  if(NOT CMAKE_CUDA_COMPILER) # what was missing at the last run may be here now
    unset(CMAKE_CUDA_COMPILER CACHE)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
  else()
    set(gpu_missing "there is no nvcc with a C++ compiler: set CUDACXX to nvcc")
  endif()
endif()

# ---- CUDA ---------------------------------------------------------------------------------------
if(CMAKE_CUDA_COMPILER_LOADED)
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  set(CMAKE_CUDA_RUNTIME_LIBRARY None) # C files call it too: it is linked as a library
  # Wheels have the libraries' versioned names only, which FindCUDAToolkit does not know.
  foreach(variable CUDA_CUDART:cudart CUDA_cudart_LIBRARY:cudart CUDA_cublasLt_LIBRARY:cublasLt)
    string(REPLACE ":" ";" variable ${variable})
    list(POP_FRONT variable cached name)
    find_library(${cached} NAMES ${name} lib${name}.so.13 lib${name}.so.12 NO_DEFAULT_PATH
                 HINTS ${CMAKE_CUDA_COMPILER_TOOLKIT_ROOT} PATH_SUFFIXES lib64 lib)
  endforeach()
  find_package(CUDAToolkit QUIET)
  if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12)
    set(gpu_missing "${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_CUDA_COMPILER_VERSION}, and 12 is \
the least: set CUDACXX to a newer one")
  elseif(NOT TARGET CUDA::cudart OR NOT TARGET CUDA::cublasLt)
    set(gpu_missing "${CMAKE_CUDA_COMPILER} comes without cudart or cublasLt: set \
CUDAToolkit_ROOT")
  endif()
endif()

if(gpu_missing)
  gpu_without(CUDA "${gpu_missing}")
elseif(WITH_CUDA STREQUAL "EMULATED")
  set(HAVE_CUDA TRUE)
  target_link_libraries(ddpc_gpu INTERFACE cuda_emulator)
  set(GPU_DRIVER ${PROJECT_BINARY_DIR}/lib/libcuda_emulator.so)
  string(APPEND gpu_found ", emulated CUDA")
else()
  set(HAVE_CUDA TRUE)
  target_link_libraries(ddpc_gpu INTERFACE CUDA::cudart CUDA::cublasLt)
  target_compile_options(ddpc_gpu INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda>)
  list(JOIN CMAKE_CUDA_ARCHITECTURES " " gpu_architectures)
  string(APPEND gpu_found ", CUDA ${CMAKE_CUDA_COMPILER_VERSION} (for ${gpu_architectures})")
endif()

# ---- NCCL and cuDNN -----------------------------------------------------------------------------
function(gpu_find library least)
  if(WITH_${library} STREQUAL "OFF")
    gpu_without(${library} "WITH_${library} is OFF")
  elseif(NOT HAVE_CUDA)
    gpu_without(${library} "it needs CUDA")
  elseif(WITH_CUDA STREQUAL "EMULATED")
    set(HAVE_${library} TRUE PARENT_SCOPE)
    string(TOLOWER ${library} target)
    add_library(${library}::${target} INTERFACE IMPORTED)
    target_link_libraries(${library}::${target} INTERFACE cuda_emulator)
    string(APPEND gpu_found ", emulated ${library}")
  else()
    find_package(${library} ${least} QUIET)
    if(${library}_FOUND)
      set(HAVE_${library} TRUE PARENT_SCOPE)
      string(APPEND gpu_found ", ${library} ${${library}_VERSION}")
    else()
      gpu_without(${library} "it was not found in version ${least} or newer: set ${library}_ROOT")
    endif()
  endif()
  set(gpu_found "${gpu_found}" PARENT_SCOPE)
endfunction()
gpu_find(NCCL 2.19)
gpu_find(CUDNN 8.9)

# CMake leaves folders out of the run path in which the compiler looks by itself; the loader may not.
if(CMAKE_CUDA_COMPILER_LOADED)
  foreach(file IN LISTS CUDA_CUDART CUDA_cublasLt_LIBRARY NCCL_LIBRARY CUDNN_LIBRARY)
    if(file)
      cmake_path(GET file PARENT_PATH folder)
      list(APPEND CMAKE_BUILD_RPATH "${folder}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES CMAKE_BUILD_RPATH)
endif()

string(SUBSTRING "${gpu_found}" 2 -1 gpu_found)
message(STATUS "GPU: ${gpu_found}")
