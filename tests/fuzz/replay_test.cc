// The fuzz targets without a fuzzer: files called good* are read, files called bad* are refused, and neither
// they nor what becomes of them by a few edits does harm.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/file.h"
#include "fuzz/targets.h"

namespace longspan::fuzz {
namespace {

namespace fs = std::filesystem;

std::string Edited(std::string text, const std::string& other, std::mt19937& random) {
  for (uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
    const size_t at = random() % (text.size() + 1);
    switch (random() % 4) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 4);
        break;
      case 2:
        text.insert(at, text.substr(random() % (text.size() + 1), random() % 32));
        break;
      case 3:
        text.insert(at, other.substr(random() % (other.size() + 1), random() % 32));
        break;
    }
  }
  return text;
}

class FuzzReplay : public ::testing::TestWithParam<Target> {};

TEST_P(FuzzReplay, CorpusAndEdits) {
  const Target& target = GetParam();
  std::vector<fs::path> paths;
  for (const auto& entry :
       fs::directory_iterator(fmt::format("{}/tests/fuzz/corpus/{}", LONGSPAN_SOURCE_DIR, target.name)))
    paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  int num_good = 0, num_bad = 0;
  std::vector<std::string> texts;
  for (const fs::path& path : paths) {
    texts.push_back(ReadTextFile(path.string()));
    const bool is_good = path.filename().native().starts_with("good");
    EXPECT_EQ(target.accepts(texts.back()), is_good) << path;
    ++(is_good ? num_good : num_bad);
  }
  EXPECT_GT(num_good, 0);
  EXPECT_GT(num_bad, 0);

  std::mt19937 random(5);
  int num_refused = 0;
  for (size_t i = 0; i < 300; ++i) {
    const std::string text = Edited(texts[i % texts.size()], texts[random() % texts.size()], random);
    EXPECT_NO_THROW(num_refused += !target.accepts(text)) << text;
  }
  EXPECT_GT(num_refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzReplay, ::testing::ValuesIn(Targets().begin(), Targets().end()),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace longspan::fuzz
