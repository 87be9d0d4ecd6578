# Writes FILE, a program's manual page: the output of PROGRAM --help=man, followed by the PARTS (names of files in
# FOLDER, separated by spaces), with VERSION in its footer. EMULATOR: the command, a list, that runs PROGRAM in a cross
# build.
separate_arguments(parts UNIX_COMMAND "${PARTS}")
execute_process(COMMAND ${EMULATOR} ${PROGRAM} --help=man OUTPUT_VARIABLE page COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\"ddp.c\" \"ddp.c\"" "\"ddp.c ${VERSION}\" \"ddp.c\"" page "${page}")
foreach(part IN LISTS parts)
  file(READ "${FOLDER}/${part}.man" text)
  string(APPEND page "${text}")
endforeach()
file(WRITE ${FILE} "${page}")
