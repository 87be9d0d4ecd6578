# Writes FILE, a program's manual page: what PROGRAM --help=man prints, and after it the PARTS (names of files in
# FOLDER, one space between them). Its foot has the VERSION. EMULATOR: what runs the PROGRAM of a cross build, a list.
separate_arguments(parts UNIX_COMMAND "${PARTS}")
execute_process(COMMAND ${EMULATOR} ${PROGRAM} --help=man OUTPUT_VARIABLE page COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\"ddp.c\" \"ddp.c\"" "\"ddp.c ${VERSION}\" \"ddp.c\"" page "${page}")
foreach(part IN LISTS parts)
  file(READ "${FOLDER}/${part}.man" text)
  string(APPEND page "${text}")
endforeach()
file(WRITE ${FILE} "${page}")
