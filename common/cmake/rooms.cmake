# rooms.cmake: how the folders of this project become libraries.
#
# Each is a static library, the target ddpc_NAME, which our programs and benchmarks link. As a subproject
# (add_subdirectory, FetchContent) only targets that begin with ddpc exist, so they cannot clash with the parent's.
# install.cmake combines the libraries into the installed one, which a parent links too.
#
# Built as the top-level project, tests and tutorials link NAME: all rooms in one shared library, build/lib/librooms.so,
# where every symbol is visible. A changed source is linked into that one, not into 150 programs. A program links
# NAMEs or ddpc_NAMEs, never both: it would have two copies of a library. With sanitizers NAME is ddpc_NAME.
include(CheckCCompilerFlag)
# Code for a shared library keeps its own functions' calls direct, as code for a program does.
check_c_compiler_flag(-fno-semantic-interposition HAVE_NO_SEMANTIC_INTERPOSITION)

# ddpc_room(NAME file...): the library of a folder's sources.
function(ddpc_room room)
  add_library(ddpc_${room} STATIC ${ARGN})
  if(HAVE_NO_SEMANTIC_INTERPOSITION)
    target_compile_options(ddpc_${room}
                           PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-fno-semantic-interposition>)
  endif()
  if(PROJECT_IS_TOP_LEVEL AND SANITIZE) # where the address of every symbol should be the program's own
    add_library(${room} ALIAS ddpc_${room})
  elseif(PROJECT_IS_TOP_LEVEL)
    add_library(${room} INTERFACE)
    target_link_libraries(${room} INTERFACE rooms)
    target_sources(rooms PRIVATE $<TARGET_OBJECTS:ddpc_${room}>)
  endif()
endfunction()

# ddpc_rooms_shared(): librooms.so, to which each ddpc_room adds its objects.
function(ddpc_rooms_shared)
  add_library(rooms SHARED)
  set_target_properties(rooms PROPERTIES LINKER_LANGUAGE C LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  target_link_libraries(rooms PUBLIC Threads::Threads ZLIB::ZLIB PkgConfig::CJSON PkgConfig::OPENBLAS m ${CMAKE_DL_LIBS}
                              PRIVATE OpenSSL::Crypto $<$<BOOL:${HAVE_MPI}>:MPI::MPI_C>)
  target_link_options(rooms PRIVATE -Wl,-Bsymbolic-functions -Wl,--no-undefined)
  # No program has a copy of the library's data, whose size may change (build_commit).
  target_compile_options(rooms INTERFACE $<$<COMPILE_LANGUAGE:C>:-fPIC>)
  target_sources(rooms INTERFACE
    $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:$<TARGET_OBJECTS:ddpc_before_main>>)
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
