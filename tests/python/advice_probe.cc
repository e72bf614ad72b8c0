// Reads reasons, one a line, and writes the kind of each.
#include <cstdio>
#include <cstring>

#include "python_hooks/report/advice.h"

int main() {
  char line[4096];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    line[std::strcspn(line, "\n")] = '\0';
    std::printf("%s\n", grape::python::replay::advice_for(line).kind);
  }
  return 0;
}
