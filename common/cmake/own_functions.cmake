# Writes BASE.list, for the linker's --dynamic-list, and BASE.c, a table that keeps the functions in the program, from
# BASE.symbols, a function in each line (own.cmake).
cmake_minimum_required(VERSION 3.25)
file(STRINGS ${BASE}.symbols names)
set(list "")
set(declarations "")
set(table "")
foreach(name IN LISTS names)
  string(APPEND list "${name};\n")
  string(APPEND declarations "extern void ${name}(void);\n")
  string(APPEND table "    ${name},\n")
endforeach()
file(CONFIGURE OUTPUT ${BASE}.list @ONLY CONTENT "{\n@list@};\n")
file(CONFIGURE OUTPUT ${BASE}.c @ONLY CONTENT "\
/* The functions that a user's own wrapper may call. Written by own_functions.cmake. */
@declarations@
extern void (*const own_functions[])(void);
void (*const own_functions[])(void) = {
@table@};
")
