#include "comm/agreement.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/names.h"

namespace longspan {
namespace {

constexpr size_t kMaxShownBytes = 200;  // of a line

// Takes the first line, without its end, off a text.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == text.npos ? text.size() : end + 1);
  return line;
}

}  // namespace

std::string ShareText(Comm& world, const std::string& text) {
  const bool is_first = world.rank() == 0;
  const int64_t size =
      static_cast<int64_t>(world.SumOverRanks(is_first ? static_cast<double>(text.size()) : 0));
  std::string mine = is_first ? text : "", shared(static_cast<size_t>(size), '\0');
  std::vector<Range> pieces(static_cast<size_t>(world.size()), Range{size, size});
  pieces[0] = {0, size};
  world
      .AllGather(Tensor(mine.data(), DType::kByte, {std::ssize(mine)}),
                 Tensor(shared.data(), DType::kByte, {size}), pieces)
      .Wait();
  return shared;
}

void RequireAgreement(Comm& world, const std::string& what, const std::string& text) {
  const std::string first_text = ShareText(world, text);
  std::string_view mine = text, first = first_text;
  while (!mine.empty() || !first.empty()) {
    const std::string_view here = TakeLine(mine), there = TakeLine(first);
    Require(
        ExitCode::kUsage, here == there,
        "ranks disagree on {}: rank {} has '{}' and rank 0 '{}'; start all with the same program, recipe and "
        "files",
        what, world.rank(), Shortened(here, kMaxShownBytes), Shortened(there, kMaxShownBytes));
  }
}

}  // namespace longspan
