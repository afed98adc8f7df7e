// What all commands have in common, as the overview of the manual (ringside(7)) says it.
#pragma once
#include <string>
#include <vector>

namespace ringside::cli {

struct Topic {
  std::string title, text;
};
std::vector<Topic> overview();

// The last lines of `ringside --help`.
std::string common_rules();

}  // namespace ringside::cli
