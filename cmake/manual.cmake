# Man pages and completions. The commands' pages are their own help texts; those of the C and C++ faces are the headers' comments.
set(manual ${PROJECT_BINARY_DIR}/manual)
add_custom_command(TARGET ringside_cli POST_BUILD
  COMMAND ${CMAKE_COMMAND} -E rm -rf ${manual}/cli
  COMMAND ${CMAKE_COMMAND} -E make_directory ${manual}/cli/man1 ${manual}/cli/man7
  COMMAND ringside_cli manual pages ${manual}/cli
  COMMAND ringside_cli manual bash > ${manual}/cli/ringside.bash
  COMMAND ringside_cli manual zsh > ${manual}/cli/_ringside
  COMMAND ringside_cli manual fish > ${manual}/cli/ringside.fish)
ringside_install(DIRECTORY ${manual}/cli/man1 ${manual}/cli/man7 DESTINATION ${CMAKE_INSTALL_MANDIR})
ringside_install(FILES ${manual}/cli/ringside.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME ringside)
ringside_install(FILES ${manual}/cli/_ringside DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
ringside_install(FILES ${manual}/cli/ringside.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# man3/NAME.3 from a header; what it declares gets pages that lead there.
find_program(AWK NAMES mawk gawk awk REQUIRED)
set(man3_pages "")
foreach(page ringside=ringside.h ringside-trace=trace.hpp ringside-log=log.hpp ringside-control=control.hpp ringside-consumer=consumer.hpp ringside-consumer-testing=testing.hpp ringside-consumer-c=consumer.h ringside-remote=remote.h ringside-consumer-remote=remote_reader.h)
  string(REPLACE = ";" page ${page})
  list(GET page 0 name)
  list(GET page 1 header)
  set(header ${PROJECT_SOURCE_DIR}/include/ringside/${header})
  set(out ${manual}/${name}.man3)
  add_custom_command(OUTPUT ${out}/${name}.3 DEPENDS ${header} ${PROJECT_SOURCE_DIR}/cmake/man3.awk VERBATIM
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${out}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${out}
    COMMAND ${AWK} -v page=${name} -v out=${out} -v version=${PROJECT_VERSION} -f ${PROJECT_SOURCE_DIR}/cmake/man3.awk ${header})
  list(APPEND man3_pages ${out}/${name}.3)
  ringside_install(DIRECTORY ${out}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
endforeach()
add_custom_target(man3 ALL DEPENDS ${man3_pages})
