# own.cmake: what a user's own wrapper (train_dp --wrapper, train_ddp --wrapper and --all-reduce) is compiled with and
# linked to. Included by the top CMakeLists.txt after the folders.
#
# Compiled with the public headers, which lie in build/include/ddpc as in an installation. Linked, when it is loaded, to the
# public functions, which the program exports, whether it calls them itself or not; the built-in wrappers' are not
# exported.
get_property(public GLOBAL PROPERTY DDPC_PUBLIC)
foreach(header IN LISTS public)
  cmake_path(GET header PARENT_PATH folder)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include/ddpc/${folder})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${header} ${PROJECT_BINARY_DIR}/include/ddpc/${header} SYMBOLIC)
endforeach()

# own_functions(PROGRAM REGEX): the program exports the functions of the public headers whose paths match.
function(own_functions program regex)
  if(NOT TARGET ${program})
    return()
  endif()
  set(headers ${public})
  list(FILTER headers INCLUDE REGEX "${regex}")
  list(FILTER headers EXCLUDE REGEX "/own/")
  list(JOIN headers " " names)
  list(TRANSFORM headers PREPEND ${PROJECT_SOURCE_DIR}/)
  set(base ${PROJECT_BINARY_DIR}/lib/own_${program})
  set(scripts ${PROJECT_SOURCE_DIR}/common/cmake)
  add_custom_command(
    OUTPUT ${base}.c ${base}.list
    COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D FILE=${base}.symbols -D HEADERS=${names} -P ${scripts}/exports.cmake
    COMMAND ${CMAKE_COMMAND} -D BASE=${base} -P ${scripts}/own_functions.cmake
    DEPENDS ${headers} ${scripts}/exports.cmake ${scripts}/own_functions.cmake
    COMMENT "Writing the functions that ${program} exports" VERBATIM)
  add_library(ddpc_own_${program} OBJECT ${base}.c)
  target_link_libraries(${program} ddpc_own_${program})
  target_link_options(${program} PRIVATE -Wl,--dynamic-list=${base}.list)
  set_property(TARGET ${program} APPEND PROPERTY LINK_DEPENDS ${base}.list)
endfunction()
own_functions(train_dp "^common/")
own_functions(train_ddp "^(common|ddp/group)/")
own_functions(train_fsdp "^(common|ddp/group)/")
