# Writes FILE, the header ddpc/ddpc.h: it includes every header of HEADERS (paths below SOURCE, one space between them).
# C++ sees their functions as C's. CHECK is a name that others have, too (Catch2, glog): theirs is back after this header,
# and ours is not seen. Headers of the system are included before that begins, as they may
# have C++ of their own. A public header must find what it includes from this project among the others.
cmake_minimum_required(VERSION 3.25)
separate_arguments(headers UNIX_COMMAND "${HEADERS}")

# The order in which a user reads them. Headers not listed here come last, because few programs need them.
set(order base/error device/device nn/tensor nn/tape nn/ops nn/module nn/layers nn/models nn/optimizer data/dataset
    data/sampler data/loader tensor_files/safetensors dp/data_parallel rendezvous/init group/process_group group/collective
    ddp/distributed_sampler ddp/distributed_data_parallel ddp/comm_hook)
set(first "")
foreach(name IN LISTS order)
  set(found ${headers})
  list(FILTER found INCLUDE REGEX "(^|/)${name}\\.h$")
  if(found STREQUAL "")
    message(FATAL_ERROR "${name}.h is in the reading order and is no public header")
  endif()
  list(APPEND first ${found})
  list(REMOVE_ITEM headers ${found})
endforeach()
# A line for each: its name, and the first sentence of its comment.
function(list_headers result)
  set(text "")
  foreach(header IN LISTS ARGN)
    file(READ ${SOURCE}/${header} comment LIMIT 600)
    string(REGEX REPLACE "^/\\* [a-z_0-9]+\\.h: " "" comment "${comment}")
    string(REGEX REPLACE "\n ?\\*[/\n].*" ". " comment "${comment}")
    string(REGEX REPLACE "\n \\* *" " " comment "${comment}")
    string(REPLACE "et al. " "et al. " comment "${comment}") # no end of a sentence
    string(REGEX REPLACE "(\\.| \\*/) .*" "" comment "${comment}. ")
    string(REPLACE " */" "" comment "${comment}")
    string(APPEND text "\n *   ${header}\n *       ${comment}")
  endforeach()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()
list_headers(reading ${first})
list_headers(further ${headers})
list(PREPEND headers ${first})
file(READ ${EXAMPLE} example)
string(STRIP "${example}" example)
string(REPLACE "\n" "\n *     " example "${example}")
set(system "")
set(includes "")
foreach(header IN LISTS headers)
  file(STRINGS ${SOURCE}/${header} lines REGEX "^#include ")
  foreach(line IN LISTS lines)
    if(line MATCHES "<(.*)>")
      list(APPEND system "${line}")
    elseif(line MATCHES "\"(.*)\"" AND NOT CMAKE_MATCH_1 IN_LIST headers)
      message(FATAL_ERROR "${header} is public and includes ${CMAKE_MATCH_1}, which is not: add that to a ddpc_public \
of a CMakeLists.txt, or remove the include")
    endif()
  endforeach()
  string(APPEND includes "#include \"${header}\"\n")
endforeach()
list(SORT system)
list(REMOVE_DUPLICATES system)
list(JOIN system "\n" system)
string(REPLACE "." ";" parts ${VERSION}.0.0)
list(GET parts 0 major)
list(GET parts 1 minor)
file(CONFIGURE OUTPUT ${FILE} @ONLY CONTENT [[
/* ddpc.h: everything that ddp.c offers to other programs, from C and from C++. Written by
 * ddp.c's build.
 *
 *     @example@
 *
 * The headers, in the order in which to read them; each begins with what it is:@reading@
 *
 * What some programs need:@further@
 *
 * Those who know what they need may include them by their own names, inside an extern "C" block where
 * the program is C++.
 */
#ifndef DDPC_DDPC_H
#define DDPC_DDPC_H

#define DDPC_VERSION "@VERSION@"
#define DDPC_VERSION_MAJOR @major@
#define DDPC_VERSION_MINOR @minor@

@system@

#pragma push_macro("CHECK")
#ifndef COMMON_BASE_ERROR_H
#undef CHECK
#endif

#ifdef __cplusplus
extern "C" {
#endif

@includes@
#ifdef __cplusplus
}

// In C++ a call does not lose the type of what it passes on.
template <typename T> T *must_get(T *result, const Error *err) {
    if (!result) error_exit(err);
    return result;
}
#endif

#pragma pop_macro("CHECK")

#endif
]])
