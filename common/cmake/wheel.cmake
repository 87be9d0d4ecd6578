# wheel.cmake: finds a library that was installed as a Python wheel.

# wheel_folder(VARIABLE package): where python3 would import the package from; empty if it would not.
function(wheel_folder variable package)
  execute_process(
    COMMAND python3 -c "import importlib.util as u; s = u.find_spec('${package}'); \
print(list(s.submodule_search_locations)[0] if s else '')"
    OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(folder "")
  endif()
  set(${variable} "${folder}" PARENT_SCOPE)
endfunction()

# header_version(VARIABLE file MACRO...): the numbers that the header defines, joined by dots.
function(header_version variable file)
  set(numbers "")
  if(EXISTS "${file}")
    foreach(macro IN LISTS ARGN)
      file(STRINGS "${file}" line REGEX "^#define[ \t]+${macro}[ \t]+[0-9]+" LIMIT_COUNT 1)
      string(REGEX MATCH "[0-9]+$" number "${line}")
      list(APPEND numbers "${number}")
    endforeach()
  endif()
  list(JOIN numbers "." version)
  set(${variable} "${version}" PARENT_SCOPE)
endfunction()
