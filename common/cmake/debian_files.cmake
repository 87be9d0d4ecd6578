# debian_files.cmake: run by cpack between installation and packing, in CPACK_TEMPORARY_INSTALL_DIRECTORY, which has a
# folder for each component: adds what Debian wants of each package.
file(READ ${CPACK_DDPC_SOURCE}/LICENSE license)
string(REGEX REPLACE "^MIT License\n\n(Copyright[^\n]*)\n\n" "" terms "${license}")
set(holder "${CMAKE_MATCH_1}")
string(REGEX REPLACE "\n\n" "\n.\n" terms "${terms}")
string(REGEX REPLACE "\n(.)" "\n \\1" terms "${terms}")
string(REPLACE "Copyright (c) " "" holder "${holder}")
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/${component}/usr)
  set(doc ${root}/share/doc/${package})
  file(MAKE_DIRECTORY ${doc})
  file(WRITE ${doc}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n\
Files: *\nCopyright: ${holder}\nLicense: Expat\n ${terms}")
  file(WRITE ${doc}/changelog.Debian "${package} (${CPACK_PACKAGE_VERSION}-1) unstable; urgency=medium\n\n\
  * See CHANGELOG.md of the sources.\n\n -- ${CPACK_PACKAGE_CONTACT}  Tue, 24 Nov 2026 12:00:00 +0000\n")
  file(GLOB pages ${root}/share/man/man*/*.[0-9])
  execute_process(COMMAND gzip -9n ${doc}/changelog.Debian ${pages} COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE ${root}/share/ddpc/LICENSE) # the same as copyright
endforeach()
