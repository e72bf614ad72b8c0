// Writes messages to stderr: one write(2) per line, with "grape: " in front. Allocates nothing and keeps errno.
// Async-signal-safe.
#pragma once

#include "shim/lifecycle/config.h"

namespace grape {

// printf-style; at most 1 KiB a line, control characters escaped. Printed if config().log admits the level.
void log_line(LogLevel level, const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

// As log_line at kWarning, or at kInfo where nobody asked for anything (Config::asked), and kept for the trace's
// End::notices (the first 32). Repeats of one `format` print once.
void notice(const char* format, ...) noexcept __attribute__((format(printf, 1, 2)));

}  // namespace grape
