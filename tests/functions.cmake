# functions.cmake: functions with which the folders of tests/ add their tests.

# ddpc_test(NAME LIBS lib... [WRAP function...] [LABELS label...] [TIMEOUT seconds] [PROCESSORS n] [ARGS ...])
# One CTest of one cmocka program NAME.c, which may use the trainer besides. A test that lacks hardware exits 77 = Skipped.
# WRAP: calls of the function, by the libraries too, reach __wrap_function of NAME.c (ld --wrap).
function(ddpc_test name)
  cmake_parse_arguments(T "" "TIMEOUT;PROCESSORS" "LIBS;WRAP;LABELS;ARGS" ${ARGN})
  add_executable(${name} ${name}.c)
  list(APPEND T_LIBS train)
  if(T_WRAP) # --wrap has no effect on calls within a shared library
    list(TRANSFORM T_LIBS PREPEND ddpc_)
    list(TRANSFORM T_WRAP PREPEND -Wl,--wrap=)
  endif()
  target_link_libraries(${name} ${T_LIBS} cmocka)
  target_link_options(${name} PRIVATE ${T_WRAP})
  gpu_modules_of(${name})
  if(WITH_CUDA STREQUAL "EMULATED" AND NOT "gpu" IN_LIST T_LABELS) # that build is for GPU tests
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${T_ARGS})
  ddpc_test_properties(${name} TIMEOUT ${T_TIMEOUT} PROCESSORS ${T_PROCESSORS} LABELS ${T_LABELS})
endfunction()

# For WRAP of a test that includes rigs/fake_gpus.h.
set(FAKE_GPUS device_usable device_available device_open device_close device_bind_cores)

# ddpc_test_on_gpu(NAME [LABELS label...]): adds the test NAME again as NAME_cuda, with the argument `cuda`.
function(ddpc_test_on_gpu name)
  cmake_parse_arguments(T "" "" "LABELS" ${ARGN})
  set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL OFF)
  add_test(NAME ${name}_cuda COMMAND ${name} cuda)
  ddpc_test_properties(${name}_cuda LABELS gpu ${T_LABELS} TIMEOUT 300)
endfunction()

# ddpc_script(NAME [LABELS label...] [TIMEOUT seconds] [PROCESSORS n] [ARGS ...])
# One CTest of one script NAME.sh, whose first argument is the folder of the programs.
function(ddpc_script name)
  cmake_parse_arguments(T "" "TIMEOUT;PROCESSORS" "LABELS;ARGS" ${ARGN})
  add_test(NAME ${name} COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/${name}.sh
                                ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${T_ARGS})
  ddpc_test_properties(${name} TIMEOUT ${T_TIMEOUT} PROCESSORS ${T_PROCESSORS} LABELS ${T_LABELS})
endfunction()

# The same properties for a test that was added by hand. Tests without label gpu see no GPU: --device auto then means
# the CPU on every machine.
function(ddpc_test_properties name)
  cmake_parse_arguments(T "" "TIMEOUT;PROCESSORS" "LABELS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  if(EMULATED_RACES)
    math(EXPR T_TIMEOUT "4 * ${T_TIMEOUT}")
  endif()
  if(CMAKE_CROSSCOMPILING) # qemu-user is 10 to 30 times as slow
    math(EXPR T_TIMEOUT "15 * ${T_TIMEOUT}")
  endif()
  if(NOT T_LABELS)
    set(T_LABELS unit)
  endif()
  if(NOT T_PROCESSORS)
    set(T_PROCESSORS 1)
  endif()
  # COST: tests with a long timeout start first, so that none runs alone at the end.
  set_tests_properties(${name} PROPERTIES LABELS "${T_LABELS}" TIMEOUT ${T_TIMEOUT}
                       PROCESSORS ${T_PROCESSORS} COST ${T_TIMEOUT} SKIP_RETURN_CODE 77)
  if(NOT "gpu" IN_LIST T_LABELS AND NOT name MATCHES "cuda")
    set_tests_properties(${name} PROPERTIES
                         ENVIRONMENT "CUDA_VISIBLE_DEVICES=;DDPC_EMULATED_GPUS=0")
  endif()
endfunction()
