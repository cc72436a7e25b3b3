// Real vocabularies and patterns: ids and pieces that other programs found for hard texts. Needs the
// directory of public test data (tests/CMakeLists.txt).
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/file.h"
#include "data/pretokenizer.h"
#include "data/tokenizer.h"

namespace longspan {
namespace {

using Ids = std::vector<int32_t>;

const std::string kData = LONGSPAN_SHARED_DATA;

// What a command writes to its standard output; empty if it cannot be run.
std::string OutputOf(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[1 << 16];
  for (size_t size; (size = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) text.append(buffer, size);
  return pclose(pipe) == 0 ? text : "";
}

// llama.cpp's cases: texts between separators, and a line of ids for each.
void ExpectLlamaCppCases(const std::string& name, const Tokenizer& tokenizer) {
  const std::string stem = kData + "/tokenizers/llama-cpp-cases/ggml-vocab-" + name + ".gguf";
  const std::string texts = ReadTextFile(stem + ".inp");
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::ifstream expected(stem + ".out");
  int64_t num_cases = 0;
  for (size_t begin = 0; begin < texts.size(); ++num_cases) {
    const size_t end = std::min(texts.find(separator, begin), texts.size());
    const std::string text = texts.substr(begin, end - begin);
    begin = end + separator.size();
    std::string line;
    ASSERT_TRUE(std::getline(expected, line)) << num_cases;
    std::istringstream numbers(line);
    const Ids wanted(std::istream_iterator<int32_t>(numbers), {});
    EXPECT_EQ(tokenizer.Encode(text), wanted) << text;
    EXPECT_EQ(tokenizer.Decode(wanted), text);
  }
  EXPECT_EQ(num_cases, 46);
}

TEST(RealTokenizers, Qwen3OnLlamaCppCases) {
  ExpectLlamaCppCases("qwen2", *OpenTokenizer(kData + "/tokenizers/qwen3"));
}

TEST(RealTokenizers, Gpt2OnLlamaCppCases) {
  ExpectLlamaCppCases("gpt-2", *OpenTokenizer(kData + "/tokenizers/openai/r50k_base.tiktoken"));
}

// "EncodingName: …", "Sample: …", "Encoded: [1, 2]" for each case; p50k_base and others have no vocabulary
// here.
TEST(RealTokenizers, TiktokenTestPlans) {
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  for (const char* name : {"r50k_base", "cl100k_base"})
    tokenizers[name] = OpenTokenizer(kData + "/tokenizers/openai/" + name + ".tiktoken");
  const std::string plans = ReadTextFile(kData + "/tokenizers/openai/TestPlans.txt");
  const auto field = [&](const std::string& key, size_t from, size_t* end) {
    const size_t begin = plans.find(key, from) + key.size();
    *end = key == "Sample: " ? plans.find("\nEncoded: ", begin)
                             : std::min(plans.find('\n', begin), plans.size());
    return plans.substr(begin, *end - begin);
  };
  int64_t num_cases = 0;
  for (size_t at = plans.find("EncodingName: "); at != plans.npos; at = plans.find("EncodingName: ", at)) {
    const std::string name = field("EncodingName: ", at, &at);
    const std::string text = field("Sample: ", at, &at);
    const auto wanted = nlohmann::json::parse(field("Encoded: ", at, &at)).get<Ids>();
    if (!tokenizers.contains(name)) continue;
    ++num_cases;
    EXPECT_EQ(tokenizers[name]->Encode(text), wanted) << name << ": " << text;
  }
  EXPECT_GT(num_cases, 50);
}

// Patterns in use in tokenizer.json files, and their matches as Hugging Face's library finds them.
TEST(RealTokenizers, SplitPatterns) {
  const std::string directory = kData + "/tokenizers/split-regex/";
  const auto patterns = nlohmann::json::parse(ReadTextFile(directory + "splitRegexPatterns.json"));
  auto oracle = nlohmann::json::parse(OutputOf("gzip -dc " + directory + "splitRegexOracle.json.gz"));
  Regex::Scratch scratch;
  std::vector<std::string> refused;
  for (const auto& entry : patterns["patterns"]) {
    const auto id = entry["id"].get<std::string>();
    Pretokenizer pretokenizer;
    try {
      pretokenizer.Add(
          Pretokenizer::Split{Regex(entry["pattern"].get<std::string>(), RegexDialect::kOniguruma, id),
                              Pretokenizer::Split::Behavior::kRemoved, true});
    } catch (const Error&) {
      refused.push_back(id);
      continue;
    }
    const auto& wanted = oracle["tokens"][entry.value("name", id)];
    const auto& inputs = entry.contains("inputs") ? entry["inputs"] : patterns["defaults"]["inputs"];
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::vector<std::string> pieces;
      const auto text = inputs[i].get<std::string>();
      pretokenizer.Cut(text, true, scratch, [&](std::string_view piece) { pieces.emplace_back(piece); });
      EXPECT_EQ(nlohmann::json(pieces), wanted[i]) << id << ": " << entry["pattern"] << " on " << inputs[i];
    }
  }
  EXPECT_EQ(refused, (std::vector<std::string>{"edge-ci-full-fold", "edge-class-intersection"}));
}

// Ids of whole documents as Hugging Face's library and tiktoken make them (compare_tokenizers.py --files):
// how many, and FNV-1a over them.
TEST(RealTokenizers, Bible) {
  const std::string bible = OutputOf("bible -f Gen1:1-Rev22:21 2>/dev/null");
  if (bible.empty()) GTEST_SKIP() << "the program bible (package bible-kjv) is not installed";
  struct Case {
    std::string path;
    size_t num_ids;
    uint64_t hash;
  };
  for (const Case& c : {Case{"tokenizers/qwen3", 1180878, 0xE7DC4328D6613CB4u},
                        Case{"tinystories-656k", 1724152, 0xDE7426705B29EB89u},
                        Case{"tokenizers/openai/cl100k_base.tiktoken", 1139587, 0x5002E0FA3F984A06u},
                        Case{"tokenizers/openai/r50k_base.tiktoken", 1169600, 0xFCDC4AD144E382CDu}}) {
    const Ids ids = OpenTokenizer(kData + "/" + c.path)->Encode(bible);
    uint64_t hash = 0xCBF29CE484222325u;
    for (const int32_t id : ids) hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001B3u;
    EXPECT_EQ(ids.size(), c.num_ids) << c.path;
    EXPECT_EQ(hash, c.hash) << c.path;
  }
}

}  // namespace
}  // namespace longspan
