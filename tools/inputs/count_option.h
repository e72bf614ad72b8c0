// Options that take a whole number.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>

namespace grape::tools {

// `count` holds the default; 0 stands for "all". Parsing throws Failure where the text is no such number.
CLI::Option* add_count(CLI::App& command, const std::string& name, std::size_t& count, const std::string& description);

}  // namespace grape::tools
