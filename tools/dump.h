// `grape dump`: reads a trace, or a cache, and shows a view of it.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/views/views.h"

namespace grape::tools {

// Adds the subcommand; its options end in `options`.
CLI::App* add_dump(CLI::App& app, DumpOptions& options);
// The exit status. Throws Failure.
int run_dump(DumpOptions& options);

}  // namespace grape::tools
