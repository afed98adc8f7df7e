// Finds what belongs to the program: beside it (a build tree), or in a directory of libraries (an installation).
#pragma once
#include <string>
#include <vector>

namespace ringside {

std::string directory_of_program();
// The path of `name`; empty: it is not there. beside: below the program's directory; below: in these directories below lib.
std::string find_installed(const std::string& name, const std::string& beside, const std::vector<std::string>& below);
// The directory of the plugin for babeltrace2; empty: it is not there (babeltrace2 may still know it).
std::string find_babeltrace_plugin();

}  // namespace ringside
