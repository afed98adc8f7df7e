# The reading side: the library ringside::consumer, the commands, the recorder of the C library's calls, the examples.
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_library(TRACEFS tracefs REQUIRED)  # its pkg-config file would link libtraceevent, too
pkg_check_modules(COMPRESSION REQUIRED IMPORTED_TARGET zlib libzstd)
pkg_check_modules(ELFUTILS REQUIRED IMPORTED_TARGET libdw libelf liblzma)
pkg_check_modules(SECCOMP REQUIRED IMPORTED_TARGET libseccomp)
pkg_check_modules(NCURSES REQUIRED ncursesw)
find_path(PROTOZERO protozero/pbf_writer.hpp REQUIRED)  # libprotozero-dev: headers alone

# What most of a target's sources include, compiled once: a third of the build's time.
function(ringside_precompile target)
  target_precompile_headers(${target} PRIVATE <algorithm> <chrono> <functional> <map> <memory> <optional> <string> <thread> <unordered_map> <vector>
    <fmt/format.h> ${ARGN})
endfunction()

# The products beside the reading side. What is left out has a command that says how to get it (src/cli/absent.cpp).
option(RINGSIDE_FLEET "Build ringside ship, and what reads the server that it sends to (needs libcurl)" ON)
option(RINGSIDE_MOUNT "Build ringside mount (needs libfuse3)" ON)
option(RINGSIDE_GUEST "Build ringside guest: the monitor of small virtual machines (x86-64)" ON)
if(RINGSIDE_FLEET)
  pkg_check_modules(CURL IMPORTED_TARGET libcurl)
  if(NOT CURL_FOUND)
    message(STATUS "No ringside ship: it needs libcurl4-openssl-dev")
    set(RINGSIDE_FLEET OFF)
  endif()
endif()
if(RINGSIDE_MOUNT)
  pkg_check_modules(FUSE IMPORTED_TARGET fuse3)
  if(NOT FUSE_FOUND)
    message(STATUS "No ringside mount: it needs libfuse3-dev")
    set(RINGSIDE_MOUNT OFF)
  endif()
endif()
if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
  set(RINGSIDE_GUEST OFF)
endif()

# Before all that it needs: a build begins with its unit, the longest of all.
file(GLOB cli CONFIGURE_DEPENDS src/cli/*.cpp src/watch/*.cpp)
foreach(product FLEET=ship MOUNT=mount GUEST=guest)
  string(REPLACE = ";" product ${product})
  list(GET product 0 name)
  list(GET product 1 command)
  if(NOT RINGSIDE_${name})
    list(FILTER cli EXCLUDE REGEX "/cli/${command}\\.cpp$")
  endif()
endforeach()
if(cli)
  add_executable(ringside_cli ${cli})
endif()
ringside_library(ringside_reading source text instance kernel remote timeline decode serve stacks analysis export export/perfetto plot probe record convert consumer)
# A program for a guest: no library, no vector registers (its interrupts save none), linked at the address of a guest's ELF image.
function(ringside_guest image source)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/ringside/*.hpp)
  add_custom_command(OUTPUT ${image} DEPENDS ${source} ${headers} VERBATIM
    COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -O2 -ffreestanding -nostdinc++ -fno-exceptions -fno-rtti -fno-stack-protector
      -fno-asynchronous-unwind-tables -fno-pic -fno-pie -mno-red-zone -mgeneral-regs-only -Wall -Wextra -Werror
      -I${PROJECT_SOURCE_DIR}/include -nostdlib -static
      -Wl,-Ttext-segment=0x200000,-z,max-page-size=4096,-z,noexecstack,--build-id=none,-e,ringside_guest_start ${source} -o ${image})
endfunction()
# The web page of `ringside plot`, which src/plot/page/build makes.
set(plot_page ${PROJECT_SOURCE_DIR}/src/plot/page.html)
set_source_files_properties(src/plot/page.cpp PROPERTIES OBJECT_DEPENDS ${plot_page}
  COMPILE_DEFINITIONS RINGSIDE_PLOT_PAGE="${plot_page}")
set(flame_page ${PROJECT_SOURCE_DIR}/src/stacks/flame.html)
set_source_files_properties(src/stacks/flame_page.cpp PROPERTIES OBJECT_DEPENDS ${flame_page}
  COMPILE_DEFINITIONS RINGSIDE_FLAME_PAGE="${flame_page}")
target_link_libraries(ringside_reading PUBLIC ringside
  $<BUILD_INTERFACE:fmt::fmt> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>
  $<INSTALL_INTERFACE:fmt> $<INSTALL_INTERFACE:tracefs> $<INSTALL_INTERFACE:z> $<INSTALL_INTERFACE:zstd> $<INSTALL_INTERFACE:seccomp> $<INSTALL_INTERFACE:dw> $<INSTALL_INTERFACE:elf> $<INSTALL_INTERFACE:lzma>
  PRIVATE $<BUILD_INTERFACE:${TRACEFS}> $<BUILD_INTERFACE:PkgConfig::COMPRESSION> $<BUILD_INTERFACE:PkgConfig::SECCOMP> $<BUILD_INTERFACE:PkgConfig::ELFUTILS>)
file(RELATIVE_PATH libdir_of_binary /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})
set_source_files_properties(src/convert/installed.cpp PROPERTIES
  COMPILE_DEFINITIONS "RINGSIDE_LIBDIR_OF_BINARY=\"${libdir_of_binary}\";RINGSIDE_LIBDIR=\"${CMAKE_INSTALL_FULL_LIBDIR}\"")
set_target_properties(ringside_reading PROPERTIES EXPORT_NAME consumer)
target_compile_features(ringside_reading INTERFACE cxx_std_20)
ringside_precompile(ringside_reading)
# Each product is a library over the reading side; a program that links it has the definition RINGSIDE_NAME.
add_library(ringside_products INTERFACE)
target_link_libraries(ringside_products INTERFACE ringside_reading)
function(ringside_product name library)
  ringside_library(${library} ${ARGN})
  target_link_libraries(${library} PUBLIC ringside_reading)
  target_compile_definitions(${library} INTERFACE ${name})
  target_compile_options(${library} PRIVATE ${RINGSIDE_COLD_OPTIONS})
  target_link_libraries(ringside_products INTERFACE ${library})
  if(NOT RINGSIDE_UNITY)
    ringside_precompile(${library})
  endif()
endfunction()
if(RINGSIDE_FLEET)
  ringside_product(RINGSIDE_FLEET ringside_fleet clickhouse shipped ship)
  target_include_directories(ringside_fleet PRIVATE ${CURL_INCLUDE_DIRS})  # the library itself is loaded when a server is asked
endif()
if(RINGSIDE_MOUNT)
  ringside_product(RINGSIDE_MOUNT ringside_mount mount mount/fuse)
  target_link_libraries(ringside_mount PRIVATE PkgConfig::FUSE)
endif()
if(RINGSIDE_GUEST)
  ringside_product(RINGSIDE_GUEST ringside_guests guest)
  set(guest_demo ${PROJECT_BINARY_DIR}/guest-demo.elf)
  ringside_guest(${guest_demo} ${PROJECT_SOURCE_DIR}/src/guest/demo/demo.cpp)
  set_source_files_properties(src/guest/image.cpp PROPERTIES OBJECT_DEPENDS ${guest_demo} SKIP_UNITY_BUILD_INCLUSION ON
    COMPILE_DEFINITIONS RINGSIDE_GUEST_DEMO="${guest_demo}")
endif()
# A room's unit takes the name that CMake gives it.
foreach(room serve plot probe record convert consumer export/perfetto remote instance stacks)
  set_source_files_properties(${PROJECT_BINARY_DIR}/CMakeFiles/ringside_reading.dir/Unity/unity_${room}_cxx.cxx PROPERTIES
    COMPILE_OPTIONS "${RINGSIDE_COLD_OPTIONS}")
endforeach()
# GCC 13 and later do not take a precompiled header at another optimisation, and say so: they compile these units without it.
if(RINGSIDE_COLD_OPTIONS)
  set_target_properties(ringside_reading PROPERTIES PCH_WARN_INVALID OFF)
endif()

if(cli)
  set_target_properties(ringside_cli PROPERTIES OUTPUT_NAME ringside)
  if(RINGSIDE_UNITY)
    # One unit: of two, each would compile all of CLI11 and of the JSON library again.
    set_target_properties(ringside_cli PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
    if(RINGSIDE_COLD_OPTIONS)
      target_compile_options(ringside_cli PRIVATE ${RINGSIDE_COLD_OPTIONS} -g0)
    endif()
  else()
    ringside_precompile(ringside_cli <nlohmann/json.hpp> <CLI/CLI.hpp>)
  endif()
  target_link_libraries(ringside_cli PRIVATE ringside_products ringside_options ${NCURSES_LINK_LIBRARIES})  # its flags would be everybody's
  target_compile_definitions(ringside_cli PRIVATE RINGSIDE_VERSION="${PROJECT_VERSION}")
  ringside_install(TARGETS ringside_cli RUNTIME)
  include(cmake/manual.cmake)
endif()

file(GLOB preload CONFIGURE_DEPENDS src/preload/*.cpp)
if(preload)
  add_library(ringside_libc MODULE ${preload})
  set_target_properties(ringside_libc PROPERTIES OUTPUT_NAME ringside-libc CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(ringside_libc PRIVATE ringside ringside_options)
  # The fortified headers define some of the hooks inline.
  target_compile_options(ringside_libc PRIVATE -U_FORTIFY_SOURCE)
  # Into every process: it brings its C++ library along, so that the program loads nothing but what it loads anyway.
  target_link_options(ringside_libc PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,nodelete -static-libstdc++ -static-libgcc -Wl,-z,now -Wl,--wrap=malloc,--wrap=pthread_sigmask,--wrap=syscall)
  ringside_install(TARGETS ringside_libc LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ringside)  # no program links it
endif()

file(GLOB examples CONFIGURE_DEPENDS examples/*.cpp examples/*.c)
foreach(source ${examples})
  get_filename_component(name ${source} NAME_WE)
  add_executable(example_${name} ${source})
  if(source MATCHES "/(09_stream|10_remote|11_reader|12_range)\\.c$")
    set_target_properties(example_${name} PROPERTIES C_STANDARD 99 C_EXTENSIONS OFF)
  endif()
  file(STRINGS ${source} consumes REGEX "ringside/(consumer|remote_reader)")
  if(consumes)
    target_link_libraries(example_${name} PRIVATE ringside_reading ringside_options)
  else()
    target_link_libraries(example_${name} PRIVATE ringside ringside_options)
  endif()
endforeach()

# The plugin of babeltrace2, where its library is there.
pkg_check_modules(BABELTRACE IMPORTED_TARGET babeltrace2)
if(BABELTRACE_FOUND AND NOT RINGSIDE_SANITIZE)
  add_library(babeltrace_plugin MODULE src/babeltrace/plugin.cpp src/babeltrace/rings.cpp src/babeltrace/recorder.cpp)
  # In a directory of its own: babeltrace2 loads every library that it finds in one.
  set_target_properties(babeltrace_plugin PROPERTIES OUTPUT_NAME babeltrace-plugin-ringside PREFIX ""
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/babeltrace2 UNITY_BUILD ${RINGSIDE_UNITY})
  target_link_libraries(babeltrace_plugin PRIVATE ringside_products ringside_options PkgConfig::BABELTRACE)
  target_link_options(babeltrace_plugin PRIVATE -Wl,--exclude-libs,ALL)
  ringside_install(TARGETS babeltrace_plugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/babeltrace2/plugins)
else()
  message(STATUS "No plugin for babeltrace2: it needs libbabeltrace2-dev")
endif()
