// What `grape dump` can show of a cache, a store's file.
#pragma once

#include "tools/inputs/store_input.h"
#include "tools/views/views.h"

namespace grape::tools {

// Each returns the exit status, kOk or kDifferent.
int view_store_summary(StoreInput& input, const DumpOptions& options, Output& out);
int view_store_programs(StoreInput& input, const DumpOptions& options, Output& out);
int view_store_families(StoreInput& input, const DumpOptions& options, Output& out);
int view_store_program(StoreInput& input, const DumpOptions& options, Output& out);
int view_store_diff(StoreInput& input, const DumpOptions& options, Output& out);

// {"file": …, "view": …, <content>}
void print_json(Output& out, const StoreInput& input, const DumpOptions& options, Json content);

}  // namespace grape::tools
