// Places variables that every event reads side by side; each is defined in its own room. Between two events a program
// runs so much that these variables have left the near caches. The number of cache lines then decides the cost.
#pragma once

#define GRAPE_HOT __attribute__((section("grape_hot")))
