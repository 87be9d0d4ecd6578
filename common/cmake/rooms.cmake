# rooms.cmake: how the folders of this project become libraries.
#
# Each room is a static library, the target ddpc_ROOM. Where this project is built for itself, its tests,
# benchmarks and tutorials call it ROOM. In somebody else's build (add_subdirectory, FetchContent) only names that
# begin with ddpc exist, so that they cannot clash with names of theirs. What is installed, and what
# somebody else's build links, is made of the rooms by install.cmake.
include(CheckCCompilerFlag)
# Code for a shared library keeps its own functions' calls direct, as code for a program does.
check_c_compiler_flag(-fno-semantic-interposition HAVE_NO_SEMANTIC_INTERPOSITION)

# ddpc_room(ROOM file...): the room's library.
function(ddpc_room room)
  add_library(ddpc_${room} STATIC ${ARGN})
  if(HAVE_NO_SEMANTIC_INTERPOSITION)
    target_compile_options(ddpc_${room}
                           PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-fno-semantic-interposition>)
  endif()
  if(PROJECT_IS_TOP_LEVEL)
    add_library(${room} ALIAS ddpc_${room})
  endif()
endfunction()

# ddpc_public(pattern... [EXCEPT file...]): headers of this folder that users of the libraries may include. They are
# installed, the functions that they declare are visible in the shared libraries, and ddpc/ddpc.h includes them.
function(ddpc_public)
  cmake_parse_arguments(P "" "" "EXCEPT" ${ARGN})
  list(TRANSFORM P_UNPARSED_ARGUMENTS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  list(TRANSFORM P_EXCEPT PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  file(GLOB headers CONFIGURE_DEPENDS ${P_UNPARSED_ARGUMENTS})
  list(REMOVE_ITEM headers ${P_EXCEPT})
  foreach(header ${headers})
    cmake_path(RELATIVE_PATH header BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_property(GLOBAL APPEND PROPERTY DDPC_PUBLIC ${header})
  endforeach()
endfunction()
