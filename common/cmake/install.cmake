# install.cmake: what other programs are built with. Included last by the top CMakeLists.txt.
#
#   ddpc::common   devices, tensors, the tape, models, data, the trainer
#   ddpc::dp       DataParallel                                             and ddpc::common
#   ddpc::ddp      DistributedDataParallel, groups, launch_processes        and ddpc::common
#
# In a build of somebody else's these are static libraries. Installed, they are shared ones that show what the public
# headers declare and hide the rest, and ddpc::common_static, ddpc::dp_static and ddpc::ddp_static stand beside them
# (find_package(ddpc COMPONENTS static)). Each room says which headers are public: ddpc_public in its CMakeLists.txt.
include(CMakePackageConfigHelpers)

get_property(public GLOBAL PROPERTY DDPC_PUBLIC)
list(TRANSFORM public PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE public_files)
set(umbrella ${PROJECT_BINARY_DIR}/include/ddpc/ddpc.h)
list(JOIN public " " names)
add_custom_command(
  OUTPUT ${umbrella}
  COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D FILE=${umbrella} -D HEADERS=${names}
          -D VERSION=${PROJECT_VERSION} -P ${CMAKE_CURRENT_LIST_DIR}/umbrella.cmake
  DEPENDS ${public_files} ${CMAKE_CURRENT_LIST_DIR}/umbrella.cmake
  COMMENT "Writing ddpc/ddpc.h" VERBATIM)
add_custom_target(ddpc_umbrella ALL DEPENDS ${umbrella})

# What one library needs of another and its users do not: see ddpc_library's SHOWS.
function(ddpc_exports file)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  list(JOIN ARGN " " names)
  add_custom_command(
    OUTPUT ${file}
    COMMAND ${CMAKE_COMMAND} -D SOURCE=${PROJECT_SOURCE_DIR} -D FILE=${file} -D HEADERS=${names}
            -P ${PROJECT_SOURCE_DIR}/common/cmake/exports.cmake
    DEPENDS ${files} ${PROJECT_SOURCE_DIR}/common/cmake/exports.cmake
    COMMENT "Writing the list of what a library shows" VERBATIM)
endfunction()

function(ddpc_one_library target name)
  add_dependencies(${target} ddpc_umbrella)
  gpu_modules_of(${target})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ddpc_${name} LINKER_LANGUAGE C
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
                        ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  target_include_directories(
    ${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                        $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/ddpc>)
endfunction()

# ddpc_library(NAME ROOMS room... [USES name...] [LINKS library...] [STATIC flag...] [COPIES file...])
# The rooms as one library. STATIC: LINKS once more, as the linker knows them: what `pkg-config --static` says. COPIES:
# files of another library whose functions are not public; the shared one has them inside, hidden, a second time.
function(ddpc_library name)
  cmake_parse_arguments(L "" "" "ROOMS;USES;LINKS;STATIC;COPIES" ${ARGN})
  set(objects "")
  foreach(room ${L_ROOMS})
    list(APPEND objects $<TARGET_OBJECTS:ddpc_${room}>)
  endforeach()
  set(static ddpc_static_${name})
  add_library(${static} STATIC ${objects})
  ddpc_one_library(${static} ${name})
  target_link_libraries(${static} PRIVATE ${L_LINKS})
  set_target_properties(${static} PROPERTIES EXPORT_NAME ${name}_static)
  add_library(ddpc::${name} ALIAS ${static})
  foreach(used ${L_USES})
    target_link_libraries(${static} PUBLIC ddpc_static_${used})
  endforeach()
  if(NOT PROJECT_IS_TOP_LEVEL)
    return()
  endif()

  set(shared ddpc_shared_${name})
  set(list ${PROJECT_BINARY_DIR}/lib/ddpc_${name}.map)
  ddpc_exports(${list} ${public})
  add_library(${shared} SHARED ${objects} ${list} ${L_COPIES})
  ddpc_one_library(${shared} ${name})
  target_link_libraries(${shared} PRIVATE ${L_LINKS})
  foreach(used ${L_USES})
    target_link_libraries(${shared} PUBLIC ddpc_shared_${used})
  endforeach()
  target_link_options(${shared} PRIVATE -Wl,--version-script=${list})
  if(NOT SANITIZE) # the sanitizers' own functions come with the program
    target_link_options(${shared} PRIVATE -Wl,--no-undefined)
  endif()
  set_target_properties(
    ${shared} PROPERTIES EXPORT_NAME ${name} LINK_DEPENDS ${list} INSTALL_RPATH "$ORIGIN"
                         VERSION ${PROJECT_VERSION}
                         SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  install(TARGETS ${shared} EXPORT ddpcTargets)
  install(TARGETS ${static} EXPORT ddpcStaticTargets)

  list(TRANSFORM L_USES PREPEND ddpc- OUTPUT_VARIABLE requires)
  list(JOIN L_STATIC " " private)
  file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /) # ../.., or more of them
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/pkgconfig/ddpc-${name}.pc CONTENT "\
prefix=\${pcfiledir}/${up}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}

Name: ddpc-${name}
Description: ${PROJECT_DESCRIPTION}
Version: ${PROJECT_VERSION}
Requires: ${requires}
Libs: -L\${libdir} -lddpc_${name}
Libs.private: ${private}
Cflags: -I\${includedir} -I\${includedir}/ddpc
" @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/pkgconfig/ddpc-${name}.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

ddpc_library(common ROOMS common train LINKS Threads::Threads ZLIB::ZLIB PkgConfig::CJSON PkgConfig::OPENBLAS m
                                             ${CMAKE_DL_LIBS}
                    STATIC -lz ${CJSON_LDFLAGS} ${OPENBLAS_LDFLAGS} -lm -ldl -lpthread)
ddpc_library(dp ROOMS dp dp_trainer USES common)
set(mpi "")
if(HAVE_MPI)
  set(mpi MPI::MPI_C)
endif()
ddpc_library(ddp ROOMS ddp_store ddp_group ddp ddp_features ddp_rendezvous ddp_launch ddp_trainer USES common
                 LINKS OpenSSL::Crypto PkgConfig::CJSON m ${mpi}
                 STATIC -lcrypto ${CJSON_LDFLAGS} -lm ${MPI_C_LIBRARIES}
                 COPIES common/base/sync.c common/train/checks_ranks.c)

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()

# ---- headers, programs, data --------------------------------------------------------------------
foreach(header ${public})
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ddpc/${folder})
endforeach()
install(FILES ${umbrella} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ddpc)
install(TARGETS train_single train_dp train_ddp ddprun flight_report compare_tensors merge_traces)
foreach(module ddpc_cuda ddpc_nccl) # loaded when a GPU is asked for
  if(TARGET ${module})
    install(TARGETS ${module})
  endif()
endforeach()
install(DIRECTORY common/data/digits common/data/text DESTINATION ${CMAKE_INSTALL_DATADIR}/ddpc FILES_MATCHING
        PATTERN "*.gz" PATTERN "README.md")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/ddpc)
install(PROGRAMS common/train/pt_to_safetensors.py DESTINATION ${CMAKE_INSTALL_DATADIR}/ddpc)

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
            -D FOLDER=${PROJECT_SOURCE_DIR}/common/man -D VERSION=${PROJECT_VERSION} -P ${PROJECT_SOURCE_DIR}/common/cmake/man.cmake
    DEPENDS ${program} ${files} ${PROJECT_SOURCE_DIR}/common/cmake/man.cmake
    COMMENT "Writing ${program}'s manual page" VERBATIM)
  add_custom_target(ddpc_man_${program} ALL DEPENDS ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endfunction()
ddpc_man(train_single training environment train_single)
ddpc_man(train_dp training environment train_dp)
ddpc_man(train_ddp training environment train_ddp)
ddpc_man(ddprun ddprun)
ddpc_man(flight_report flight_report)
ddpc_man(compare_tensors compare_tensors)
ddpc_man(merge_traces merge_traces)

# ---- the package --------------------------------------------------------------------------------
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/ddpc)
install(EXPORT ddpcTargets NAMESPACE ddpc:: DESTINATION ${package})
install(EXPORT ddpcStaticTargets NAMESPACE ddpc:: DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/ddpcConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
configure_file(common/cmake/ddpcConfig.cmake ${PROJECT_BINARY_DIR}/ddpcConfig.cmake @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/ddpcConfig.cmake ${PROJECT_BINARY_DIR}/ddpcConfigVersion.cmake
        DESTINATION ${package})
