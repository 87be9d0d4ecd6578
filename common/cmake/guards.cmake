# Writes FILE, the library's outermost layer, from HEADERS (paths below SOURCE, one space between them): for each public
# function a wrapper that checks its pointer arguments and then calls the function. A NULL that the header does not allow
# ends the program with a line that names the function and the argument, and so does a device, a tape, a module, an optimizer or
# a loader that is closed (common/base/object.h). A NULL err is replaced by an Error of the wrapper.
# Inside the library the functions are called NAME_inside (SYMBOLS, for objcopy), so that only calls from outside are checked.
#
# NULLABLE: the arguments that may be NULL (may_be_null.txt). Functions with an __attribute__ check for themselves.
cmake_minimum_required(VERSION 3.25)
separate_arguments(headers UNIX_COMMAND "${HEADERS}")
file(STRINGS ${NULLABLE} nullable REGEX "^[^#]")
set(guards "")
set(symbols "")
set(allowed "")
foreach(header IN LISTS headers)
  file(READ ${SOURCE}/${header} text)
  string(REPLACE ";" "@" text "${text}")
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")
  string(REGEX REPLACE "/\\*([^*]|\\*+[^*/])*\\*+/" "" text "${text}")
  string(REGEX REPLACE "\n#[^\n]*" "" text "${text}")
  string(REGEX MATCHALL "\n[A-Za-z][^@{}()]*[ *][a-z][a-z0-9_]*\\([^@{}]*\\)@" declarations "${text}")
  foreach(declaration IN LISTS declarations)
    string(REGEX REPLACE "[ \n]+" " " declaration "${declaration}")
    if(declaration MATCHES "^ (typedef|static) |__attribute__" OR NOT declaration MATCHES "^ (.*[ *])([a-z][a-z0-9_]*)\\((.*)\\)@$")
      continue()
    endif()
    set(result "${CMAKE_MATCH_1}")
    set(name ${CMAKE_MATCH_2})
    set(parameters "${CMAKE_MATCH_3}")
    # A function's own parameters are no parameters of this one.
    string(REGEX REPLACE "\\(\\*([a-z_]+)\\)\\([^()]*\\)" "*\\1" list "${parameters}")
    string(REGEX REPLACE ", *" ";" list "${list}")
    set(arguments "")
    set(checks "")
    set(open_checks "")
    foreach(parameter IN LISTS list)
      string(REGEX MATCH "([a-zA-Z0-9_]+)(\\[[^]]*\\])*$" last "${parameter}")
      set(argument "${CMAKE_MATCH_1}")
      if(argument STREQUAL "void")
        break()
      endif()
      list(APPEND arguments ${argument})
      set(may_be_null FALSE)
      foreach(pattern IN LISTS nullable)
        if("${name}.${argument}" MATCHES "^${pattern}$")
          set(may_be_null TRUE)
          string(APPEND allowed "// ${name}.${argument} may be NULL\n")
        endif()
      endforeach()
      if(parameter MATCHES "^(const )?(Device|Tape|Module|Optimizer|Loader) \\*[a-z_]+$" AND NOT name MATCHES "_close$")
        string(APPEND open_checks "    if (${argument} && !object_is_open(${argument})) closed_argument(\"${name}\", \"${argument}\")@\n")
      endif()
      if(NOT parameter MATCHES "[*[]" OR may_be_null)
        continue()
      elseif(parameter STREQUAL "Error *err")
        string(APPEND checks "    Error unread = {0}@\n    if (!err) err = &unread@\n")
      else()
        string(APPEND checks "    if (!${argument}) null_argument(\"${name}\", \"${argument}\")@\n")
      endif()
    endforeach()
    string(APPEND checks "${open_checks}")
    if(checks STREQUAL "")
      continue()
    endif()
    list(JOIN arguments ", " arguments)
    set(return "return ")
    if(result STREQUAL "void ")
      set(return "")
    endif()
    string(APPEND guards "${result}${name}_inside(${parameters})@\n"
           "${result}${name}(${parameters}) {\n${checks}    ${return}${name}_inside(${arguments})@\n}\n\n")
    string(APPEND symbols "${name} ${name}_inside\n")
  endforeach()
endforeach()
string(REPLACE "@" ";" guards "${guards}")
file(WRITE ${FILE} "// Written by common/cmake/guards.cmake.\n#include <ddpc/ddpc.h>
_Bool object_is_open(const void *object);

static _Noreturn void null_argument(const char *function, const char *argument) {
    fprintf(stderr, \"%s: CHECK(%s) failed: the argument %s is NULL\\n\", function, argument, argument);
    abort();
}

static _Noreturn void closed_argument(const char *function, const char *argument) {
    fprintf(stderr, \"%s: CHECK(open) failed: the argument %s is closed already\\n\", function, argument);
    abort();
}

${guards}${allowed}")
file(WRITE ${SYMBOLS} "${symbols}")
