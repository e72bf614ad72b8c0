// Variables that every event reads lie side by side, each defined in its own room: between two events a program runs
// so much that all of them have left the near caches, and what counts is how many cache lines they are in.
#pragma once

#define GRAPE_HOT __attribute__((section("grape_hot")))
