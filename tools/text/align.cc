#include "tools/text/align.h"

#include <algorithm>

namespace grape::tools {
namespace {

using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;
using Row = std::vector<std::ptrdiff_t>;  // furthest x on each diagonal -d..d

// The furthest points of every number of edits, up to the one that reaches both ends; empty: too many.
std::vector<Row> search(const std::uint32_t* a, std::ptrdiff_t n, const std::uint32_t* b, std::ptrdiff_t m,
                        std::ptrdiff_t most) {
  std::vector<Row> rows;
  for (std::ptrdiff_t d = 0; d <= std::min(most, n + m); ++d) {
    Row row(static_cast<std::size_t>(2 * d + 1));
    for (std::ptrdiff_t k = -d; k <= d; k += 2) {
      std::ptrdiff_t x = 0;
      if (d > 0) {
        const Row& last = rows.back();
        const auto at = [&last, d](std::ptrdiff_t diagonal) {
          return last[static_cast<std::size_t>(diagonal + d - 1)];
        };
        x = k == -d || (k != d && at(k - 1) < at(k + 1)) ? at(k + 1) : at(k - 1) + 1;
      }
      while (x < n && x - k < m && a[x] == b[x - k]) ++x;
      row[static_cast<std::size_t>(k + d)] = x;
      if (x >= n && x - k >= m) {
        rows.push_back(std::move(row));
        return rows;
      }
    }
    rows.push_back(std::move(row));
  }
  return {};
}

// Walks back from both ends.
Pairs backtrack(const std::vector<Row>& rows, std::ptrdiff_t x, std::ptrdiff_t y) {
  Pairs pairs;
  for (auto d = static_cast<std::ptrdiff_t>(rows.size()) - 1; d > 0; --d) {
    const Row& last = rows[static_cast<std::size_t>(d - 1)];
    const auto at = [&last, d](std::ptrdiff_t diagonal) { return last[static_cast<std::size_t>(diagonal + d - 1)]; };
    const std::ptrdiff_t k = x - y;
    const bool down = k == -d || (k != d && at(k - 1) < at(k + 1));
    const std::ptrdiff_t before_k = down ? k + 1 : k - 1;
    const std::ptrdiff_t before_x = at(before_k), before_y = before_x - before_k;
    const std::ptrdiff_t after_x = down ? before_x : before_x + 1, after_y = down ? before_y + 1 : before_y;
    for (; x > after_x && y > after_y; --x, --y) pairs.emplace_back(x - 1, y - 1);
    pairs.emplace_back(down ? kNoPartner : static_cast<std::size_t>(before_x),
                       down ? static_cast<std::size_t>(before_y) : kNoPartner);
    x = before_x;
    y = before_y;
  }
  for (; x > 0 && y > 0; --x, --y) pairs.emplace_back(x - 1, y - 1);
  std::reverse(pairs.begin(), pairs.end());
  return pairs;
}

}  // namespace

Pairs align(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b, std::size_t most_edits) {
  std::size_t head = 0, tail = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head]) ++head;
  while (tail < a.size() - head && tail < b.size() - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  const std::size_t n = a.size() - head - tail, m = b.size() - head - tail;
  Pairs pairs;
  for (std::size_t i = 0; i < head; ++i) pairs.emplace_back(i, i);
  const auto rows = search(a.data() + head, static_cast<std::ptrdiff_t>(n), b.data() + head,
                           static_cast<std::ptrdiff_t>(m), static_cast<std::ptrdiff_t>(most_edits));
  if (rows.empty()) {
    for (std::size_t i = 0; i < n; ++i) pairs.emplace_back(head + i, kNoPartner);
    for (std::size_t j = 0; j < m; ++j) pairs.emplace_back(kNoPartner, head + j);
  } else {
    for (auto [i, j] : backtrack(rows, static_cast<std::ptrdiff_t>(n), static_cast<std::ptrdiff_t>(m))) {
      pairs.emplace_back(i == kNoPartner ? i : i + head, j == kNoPartner ? j : j + head);
    }
  }
  for (std::size_t i = tail; i > 0; --i) pairs.emplace_back(a.size() - i, b.size() - i);
  return pairs;
}

}  // namespace grape::tools
