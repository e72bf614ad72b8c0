// Inspects a program's file: will the dynamic loader preload a library into it?
#pragma once

#include <string>

namespace grape::tools {

// The file that execvp would run, as a path; "" where there is none. `error`: errno of the search (ENOENT, EACCES).
std::string find_program(const std::string& name, int& error);

// Why the loader would not preload a library into the program at `path`; "": it would. Follows "#!" lines, and
// "#!/usr/bin/env program". A file that cannot be read is taken to be fine.
std::string why_not_preloadable(const std::string& path);

// Why `path` is no shared library for this machine; "": it is one.
std::string why_not_library(const std::string& path);

// This executable's own file.
std::string own_path();

// libgrape.so as it lies relative to this executable, or `wanted` if that is not empty. Throws Failure.
std::string find_library(const std::string& wanted);

}  // namespace grape::tools
