// How long a call takes, also where the caches hold none of what it touches.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace grape::test {

template <typename Call>
double microseconds(int calls, Call call) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  return time.count() / calls;
}

// The mean of `calls` calls, with a buffer of `trash` bytes run through in between, outside of the time.
template <typename Call>
double microseconds_cold(int calls, std::size_t trash, Call call) {
  std::vector<char> buffer(trash);
  double sum = 0;
  for (int i = 0; i < calls; ++i) {
    for (std::size_t at = 0; at < trash; at += 64) buffer[at] = static_cast<char>(buffer[at] + i);
    sum += microseconds(1, call);
  }
  return sum / calls;
}

}  // namespace grape::test
