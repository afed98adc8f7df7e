// A reader of the installed <ringside/remote_reader.h> as an input.
#pragma once
#include <memory>

#include "consumer/input.hpp"

struct ringside_remote_reader;

namespace ringside {

std::unique_ptr<Input> reader_input(ringside_remote_reader& reader);

}  // namespace ringside
