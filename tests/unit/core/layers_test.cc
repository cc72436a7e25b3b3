// Includes point one way: a file includes its own layer or any below, never a sibling or one above.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

namespace longspan {
namespace {

// core < mask < {backend, comm, data} < parallel < model < train < {eval, plan} < bench < cli
const std::map<std::string, int> kHeights = {{"core", 0}, {"mask", 1},     {"backend", 2}, {"comm", 2},
                                             {"data", 2}, {"parallel", 3}, {"model", 4},   {"train", 5},
                                             {"eval", 6}, {"plan", 6},     {"bench", 7},   {"cli", 8}};

// Whether a file of layer `from` may include one of layer `to`.
bool MayInclude(const std::string& from, const std::string& to) {
  return from == to || kHeights.at(to) < kHeights.at(from);
}

TEST(Layers, IncludesPointDown) {
  const std::filesystem::path root = LONGSPAN_SOURCE_DIR "/src";
  const std::regex include("^\\s*#\\s*include\\s*\"([a-z]+)/.*");
  int num_includes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    if (!entry.is_regular_file() || entry.path().filename() == "CMakeLists.txt") continue;
    const std::string file = std::filesystem::relative(entry.path(), root).string();
    const std::string layer = file.substr(0, file.find('/'));
    ASSERT_TRUE(kHeights.contains(layer)) << file << " is in no layer";
    std::ifstream stream(entry.path());
    for (std::string line; std::getline(stream, line);) {
      std::smatch match;
      if (!std::regex_match(line, match, include)) continue;
      ++num_includes;
      ASSERT_TRUE(kHeights.contains(match[1])) << file << ": " << line;
      EXPECT_TRUE(MayInclude(layer, match[1])) << file << ": " << line << " points up or sideways";
    }
  }
  EXPECT_GT(num_includes, 50);  // the expression still finds them
}

TEST(Layers, SiblingsAndUpwardIncludesAreRefused) {
  EXPECT_TRUE(MayInclude("cli", "core"));
  EXPECT_TRUE(MayInclude("comm", "comm"));
  EXPECT_FALSE(MayInclude("comm", "data"));
  EXPECT_FALSE(MayInclude("backend", "comm"));
  EXPECT_FALSE(MayInclude("plan", "eval"));
  EXPECT_FALSE(MayInclude("plan", "bench"));
  EXPECT_FALSE(MayInclude("mask", "backend"));
}

}  // namespace
}  // namespace longspan
