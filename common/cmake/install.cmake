# install.cmake: what other programs are built with. Included last by the top CMakeLists.txt.
#
#   ddpc::ddpc          devices, tensors, the tape, models, data, DataParallel, groups, DistributedDataParallel
#   ddpc::ddpc_static   the same as an archive: find_package(ddpc COMPONENTS static)
#
# As a subproject, ddpc::ddpc is the archive; installed, it is a shared library. Both export the functions that public
# headers declare (ddpc_public in each folder's CMakeLists.txt) and no other symbol, so every other name is free for the
# program. Our own programs, benchmarks, tests and tutorials link the folders' libraries (rooms.cmake), where every symbol is
# visible.
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME programs) # components: programs, dev, cuda (package.cmake)

get_property(public GLOBAL PROPERTY DDPC_PUBLIC)
list(TRANSFORM public PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE public_files)
set(umbrella ${PROJECT_BINARY_DIR}/include/ddpc/ddpc.h)
list(JOIN public " " names)
add_custom_command(
  OUTPUT ${umbrella}
  COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D FILE=${umbrella} -D HEADERS=${names}
          -D EXAMPLE=${CMAKE_CURRENT_LIST_DIR}/example.in -D VERSION=${PROJECT_VERSION} -P ${CMAKE_CURRENT_LIST_DIR}/umbrella.cmake
  DEPENDS ${public_files} ${CMAKE_CURRENT_LIST_DIR}/example.in ${CMAKE_CURRENT_LIST_DIR}/umbrella.cmake
  COMMENT "Writing ddpc/ddpc.h" VERBATIM)
add_custom_target(ddpc_umbrella ALL DEPENDS ${umbrella})

# ---- the library ----------------------------------------------------------------------------------
# All libraries of rooms.cmake in one object file, behind the guards of the public functions; all other names are then local.
set(symbols ${PROJECT_BINARY_DIR}/lib/ddpc.symbols)
set(object ${PROJECT_BINARY_DIR}/lib/ddpc.o)
set(guards ${PROJECT_BINARY_DIR}/lib/guards)
add_custom_command(
  OUTPUT ${guards}.c ${guards}.symbols
  COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D FILE=${guards}.c -D SYMBOLS=${guards}.symbols -D HEADERS=${names}
          -D NULLABLE=${CMAKE_CURRENT_LIST_DIR}/may_be_null.txt -P ${CMAKE_CURRENT_LIST_DIR}/guards.cmake
  DEPENDS ${public_files} ${CMAKE_CURRENT_LIST_DIR}/guards.cmake ${CMAKE_CURRENT_LIST_DIR}/may_be_null.txt
  COMMENT "Writing the checks of public functions' arguments" VERBATIM)
add_library(ddpc_guards STATIC ${guards}.c)
target_include_directories(ddpc_guards PRIVATE ${PROJECT_BINARY_DIR}/include)
add_dependencies(ddpc_guards ddpc_umbrella)
set(rooms common dp ddp_store ddp_group ddp ddp_features ddp_rendezvous ddp_launch)
list(APPEND rooms ddp_fsdp)
set(objects "")
foreach(room IN LISTS rooms)
  list(APPEND objects $<TARGET_OBJECTS:ddpc_${room}>)
endforeach()
list(TRANSFORM rooms PREPEND ddpc_) # make has rules for a folder's own objects only, so targets are what is waited for
add_custom_command(
  OUTPUT ${symbols}
  COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D FILE=${symbols} -D HEADERS=${names}
          -P ${CMAKE_CURRENT_LIST_DIR}/exports.cmake
  DEPENDS ${public_files} ${CMAKE_CURRENT_LIST_DIR}/exports.cmake
  COMMENT "Writing the list of public functions" VERBATIM)
add_custom_command(
  OUTPUT ${object}
  COMMAND ${CMAKE_LINKER} -r -o ${object}.inside ${objects}
  COMMAND ${CMAKE_OBJCOPY} --redefine-syms=${guards}.symbols ${object}.inside
  COMMAND ${CMAKE_LINKER} -r -o ${object} ${object}.inside $<TARGET_OBJECTS:ddpc_guards>
  COMMAND ${CMAKE_OBJCOPY} --keep-global-symbols=${symbols} ${object}
  DEPENDS ${rooms} ddpc_guards ${symbols} ${guards}.symbols
  COMMENT "Hiding what is not public" COMMAND_EXPAND_LISTS VERBATIM)
add_custom_target(ddpc_object DEPENDS ${object}) # made once, for both libraries

# ddpc_library(TARGET TYPE): the object as a library.
function(ddpc_library target type)
  add_library(${target} ${type} ${object})
  add_dependencies(${target} ddpc_umbrella ddpc_object)
  gpu_modules_of(${target})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ddpc LINKER_LANGUAGE C
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
                        ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  target_include_directories(
    ${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                        $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/ddpc>)
  target_link_libraries(
    ${target} PRIVATE Threads::Threads ZLIB::ZLIB PkgConfig::CJSON PkgConfig::OPENBLAS OpenSSL::Crypto m
                      ${CMAKE_DL_LIBS} $<$<BOOL:${HAVE_MPI}>:MPI::MPI_C>)
endfunction()

ddpc_library(ddpc_static STATIC)
if(NOT PROJECT_IS_TOP_LEVEL)
  add_library(ddpc::ddpc ALIAS ddpc_static)
  return()
endif()
ddpc_library(ddpc_shared SHARED)
# A program's function with the name of a public one of ours takes its place for that program, and not for us.
target_link_options(ddpc_shared PRIVATE -Wl,-Bsymbolic-functions)
if(NOT SANITIZE) # the sanitizers' own functions come with the program
  target_link_options(ddpc_shared PRIVATE -Wl,--no-undefined)
endif()
set_target_properties(
  ddpc_shared PROPERTIES EXPORT_NAME ddpc INSTALL_RPATH "$ORIGIN" VERSION ${PROJECT_VERSION}
                         SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
install(TARGETS ddpc_shared EXPORT ddpcTargets LIBRARY NAMELINK_COMPONENT dev)
install(TARGETS ddpc_static EXPORT ddpcStaticTargets COMPONENT dev)

file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /) # ../.., or more of them
list(JOIN MPI_C_LIBRARIES " " mpi)
list(JOIN CJSON_LDFLAGS " " cjson)
list(JOIN OPENBLAS_LDFLAGS " " openblas)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/pkgconfig/ddpc.pc CONTENT "\
prefix=\${pcfiledir}/${up}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}

Name: ddpc
Description: ${PROJECT_DESCRIPTION}
Version: ${PROJECT_VERSION}
Libs: -L\${libdir} -lddpc
Libs.private: -lz -lcrypto ${cjson} ${openblas} ${mpi} -lm -ldl -lpthread
Cflags: -I\${includedir} -I\${includedir}/ddpc
" @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/pkgconfig/ddpc.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# ---- headers, programs, data --------------------------------------------------------------------
foreach(header ${public})
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ddpc/${folder}
          COMPONENT dev)
endforeach()
install(FILES ${umbrella} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ddpc COMPONENT dev)
install(TARGETS train_single train_dp train_ddp ddprun flight_report compare_tensors merge_traces)
install(TARGETS train_fsdp)
foreach(module ddpc_cuda ddpc_nccl) # loaded when a GPU is asked for
  if(TARGET ${module})
    install(TARGETS ${module} COMPONENT cuda)
  endif()
endforeach()
install(DIRECTORY common/data/digits common/data/text DESTINATION ${CMAKE_INSTALL_DATADIR}/ddpc FILES_MATCHING
        PATTERN "*.gz" PATTERN "README.md")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/ddpc)
install(PROGRAMS common/tensor_files/pt_to_safetensors.py DESTINATION ${CMAKE_INSTALL_DATADIR}/ddpc)

# ---- manual pages -------------------------------------------------------------------------------
# ddpc_man(program part...): from its options table, and what common/man/PART.man adds.
function(ddpc_man program)
  set(page ${PROJECT_BINARY_DIR}/man/${program}.1)
  list(JOIN ARGN " " parts)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/common/man/ OUTPUT_VARIABLE files)
  list(TRANSFORM files APPEND .man)
  add_custom_command(
    OUTPUT ${page}
    COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${program}> -D FILE=${page} -D PARTS=${parts}
            "-DEMULATOR=$<$<BOOL:${CMAKE_CROSSCOMPILING}>:${CMAKE_CROSSCOMPILING_EMULATOR}>"
            -D FOLDER=${PROJECT_SOURCE_DIR}/common/man -D VERSION=${PROJECT_VERSION} -P ${PROJECT_SOURCE_DIR}/common/cmake/man.cmake
    DEPENDS ${program} ${files} ${PROJECT_SOURCE_DIR}/common/cmake/man.cmake
    COMMENT "Writing ${program}'s manual page" VERBATIM)
  add_custom_target(ddpc_man_${program} ALL DEPENDS ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endfunction()
ddpc_man(train_single training environment train_single)
ddpc_man(train_dp training environment train_dp)
ddpc_man(train_ddp training environment ranks train_ddp)
ddpc_man(train_fsdp training environment ranks train_fsdp)
ddpc_man(ddprun ddprun)
ddpc_man(flight_report flight_report)
ddpc_man(compare_tensors compare_tensors)
ddpc_man(merge_traces merge_traces)

file(READ common/cmake/example.in example)
string(STRIP "${example}" example)
string(REPLACE "\\" "\\e" example "${example}")
string(REPLACE "-" "\\-" example "${example}")
configure_file(common/man/ddpc.7 ${PROJECT_BINARY_DIR}/man/ddpc.7 @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/man/ddpc.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT dev)

# ---- the package --------------------------------------------------------------------------------
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/ddpc)
install(EXPORT ddpcTargets NAMESPACE ddpc:: DESTINATION ${package} COMPONENT dev)
install(EXPORT ddpcStaticTargets NAMESPACE ddpc:: DESTINATION ${package} COMPONENT dev)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ddpcConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
configure_file(common/cmake/ddpcConfig.cmake ${PROJECT_BINARY_DIR}/ddpcConfig.cmake @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ddpcConfig.cmake ${PROJECT_BINARY_DIR}/ddpcConfigVersion.cmake
        DESTINATION ${package} COMPONENT dev)
include(package)
