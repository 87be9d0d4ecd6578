# FindCUDNN.cmake: NVIDIA's convolutions, as CUDNN::cudnn. Looked for in $CUDNN_ROOT, beside the CUDA
# toolkit, in the system, and in the folder of the Python wheel (which has no plain libcudnn.so).
include(wheel)
wheel_folder(CUDNN_WHEEL nvidia.cudnn)
find_path(CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_WHEEL}
          PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 libcudnn.so.8 NAMES_PER_DIR
             HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDNN_WHEEL}
             PATH_SUFFIXES lib lib64)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)
header_version(CUDNN_VERSION "${CUDNN_INCLUDE_DIR}/cudnn_version.h"
               CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR
                                  VERSION_VAR CUDNN_VERSION)
if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES IMPORTED_LOCATION "${CUDNN_LIBRARY}"
                        INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_INCLUDE_DIR}")
endif()
