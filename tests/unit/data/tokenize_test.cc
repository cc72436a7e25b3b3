#include "data/tokenize.h"

#include <gtest/gtest.h>

#include <cstring>

#include "core/file.h"
#include "data/corpus.h"
#include "data/tokenizer.h"
#include "support/compress.h"
#include "support/expect_error.h"
#include "support/files.h"
#include "support/tiny_tokenizer.h"

namespace longspan {
namespace {

using testing::ExpectError;
using testing::Gzip;
using testing::TemporaryDirectory;
using testing::WriteText;
using Ids = std::vector<int32_t>;

Ids Numbers(const std::string& path) {
  const std::string bytes = ReadTextFile(path);
  Ids ids(bytes.size() / 4);
  std::memcpy(ids.data(), bytes.data(), 4 * ids.size());
  return ids;
}

class TokenizeTest : public ::testing::Test {
 protected:
  TokenizeTest() {
    WriteText(folder_ / "t/tokenizer.json", testing::kTinyTokenizer);
    config_.tokenizer_path = folder_ / "t";
  }
  TokenizeReport Run(const std::string& data_path, const std::string& output) {
    config_.data_path = data_path;
    config_.output = folder_ / output;
    std::filesystem::remove(config_.output);
    return Tokenize(config_);
  }
  std::unique_ptr<Corpus> Open(const std::string& path) {
    tokenizer_ = OpenTokenizer(config_.tokenizer_path);
    return OpenCorpus(path, *tokenizer_, 20);
  }

  TemporaryDirectory folder_;
  TokenizeConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(TokenizeTest, PlainIdsAreThoseOfAllDocuments) {
  WriteText(folder_ / "d/1.txt", "abba");
  // Of two texts nothing is left: one is empty, the other has no character that the tokenizer knows.
  WriteText(folder_ / "d/2.jsonl",
            "{\"text\": \"ac\"}\n\n{\"input_ids\": [3, 3]}\n{\"text\": \"\"}\n{\"text\": \"xyz\"}\n");
  WriteText(folder_ / "d/3.txt.gz", Gzip("h"));
  config_.format = "u32";
  const TokenizeReport report = Run(folder_ / "d", "out.bin");
  EXPECT_EQ(Numbers(folder_ / "out.bin"), (Ids{11, 8, 1, 0, 11, 9, 3, 3, 11, 7}));
  EXPECT_EQ(report.documents, 4);
  EXPECT_EQ(report.tokens, 10);
  EXPECT_EQ(report.files.files, 3);
  EXPECT_EQ(report.output_bytes, 40);
  EXPECT_EQ(report.id_bytes, 4);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.bin.tmp"));
}

TEST_F(TokenizeTest, ATokenFileReadsLikeTheTextItself) {
  WriteText(folder_ / "d/1.txt", "abba");
  WriteText(folder_ / "d/2.jsonl",
            "{\"text\": \"ac\"}\n"
            "{\"input_ids\": [3, 4, 5], \"loss_mask\": [0, 1, 0]}\n"
            "{\"input_ids\": [3, 4], \"labels\": [-100, 4]}\n");
  const TokenizeReport report = Run(folder_ / "d", "out.tokens");
  EXPECT_EQ(report.ignored_tokens, 3);
  EXPECT_EQ(report.id_bytes, 2);
  const auto text = Open(folder_ / "d"), tokens = Open(folder_ / "out.tokens");
  ASSERT_EQ(tokens->num_documents(), 4);
  for (int64_t i = 0; i < 4; ++i) {
    const auto size = static_cast<size_t>(text->num_tokens(i));
    ASSERT_EQ(tokens->num_tokens(i), text->num_tokens(i));
    Ids a(size), b(size);
    text->ReadTokens(i, 0, a);
    tokens->ReadTokens(i, 0, b);
    EXPECT_EQ(a, b);
    text->ReadLabels(i, 0, a);
    tokens->ReadLabels(i, 0, b);
    EXPECT_EQ(a, b);
    EXPECT_TRUE(tokens->DocumentName(i).starts_with(text->DocumentName(i) + " (")) << tokens->DocumentName(i);
  }
  // Beside other files of a folder, in its place.
  std::filesystem::rename(folder_ / "out.tokens", folder_ / "d/1a.tokens");
  const auto all = Open(folder_ / "d");
  ASSERT_EQ(all->num_documents(), 8);
  Ids ids(4);
  all->ReadTokens(1, 0, ids);
  EXPECT_EQ(ids, (Ids{11, 8, 1, 0}));
  EXPECT_EQ(all->num_tokens(4), 2);
  EXPECT_EQ(all->DocumentName(7), folder_ / "d/2.jsonl:3");
  EXPECT_EQ(all->file_counts().files, 3);
  EXPECT_EQ(all->total_tokens(), 22);
}

TEST_F(TokenizeTest, ThreadsChangeNothing) {
  std::string lines;
  for (int i = 0; i < 60000; ++i)
    lines += fmt::format("{{\"text\": \"{}{}\"}}\n", i % 3 == 0 ? "ab" : "hgf", std::string(i % 7, 'c'));
  WriteText(folder_ / "d/lines.jsonl", lines);
  WriteText(folder_ / "d/lines.jsonl.gz", Gzip(lines));
  for (int i = 0; i < 50; ++i)
    WriteText(folder_ / fmt::format("d/{}.txt", i), std::string(1 + i * 31 % 97, 'a'));
  std::string first;
  for (const int threads : {1, 2, 5}) {
    config_.threads = threads;
    EXPECT_EQ(Run(folder_ / "d", "out.tokens").documents, 120050);
    const std::string bytes = ReadTextFile(folder_ / "out.tokens");
    if (threads == 1) first = bytes;
    EXPECT_TRUE(bytes == first) << threads;
  }
  // Lines are numbered through the pieces that they were read in, compressed or not.
  const auto corpus = Open(folder_ / "out.tokens");
  EXPECT_TRUE(corpus->DocumentName(120049).starts_with(folder_ / "d/lines.jsonl.gz:60000 "));
  EXPECT_TRUE(corpus->DocumentName(60049).starts_with(folder_ / "d/lines.jsonl:60000 "));
}

TEST_F(TokenizeTest, TheFirstErrorIsTheOneThatIsSaid) {
  std::string lines;
  for (int i = 0; i < 40000; ++i) lines += "{\"text\": \"ab\"}\n";
  WriteText(folder_ / "d/a.jsonl", lines + "{\"text\": 1}\n" + lines + "nothing\n");
  config_.threads = 4;
  ExpectError({"d/a.jsonl:40001", "\"text\" is 1"}, [&] { Run(folder_ / "d", "out.tokens"); });
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.tokens"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out.tokens.tmp"));
}

TEST_F(TokenizeTest, Refusals) {
  const std::string text = WriteText(folder_ / "a.txt", "ab");
  WriteText(folder_ / "there", "x");
  config_.data_path = text;
  config_.output = folder_ / "there";
  ExpectError(
      {"there is there already"}, [&] { Tokenize(config_); }, ExitCode::kUsage);
  EXPECT_EQ(ReadTextFile(folder_ / "there"), "x");
  const auto line = [&](const char* content) { return WriteText(folder_ / "a.jsonl", content); };
  ExpectError({"a.jsonl:1", "labels[1] is 4", "input_ids[1] is 3"},
              [&] { Run(line("{\"input_ids\": [3, 3], \"labels\": [3, 4]}"), "out"); });
  ExpectError({"a.jsonl:1", "input_ids[0] is 17"}, [&] { Run(line("{\"input_ids\": [17]}"), "out"); });
  ExpectError({"no tokens"}, [&] { Run(line("\n"), "out"); });
  Run(text, "a.tokens");
  ExpectError({"a.tokens is a token file already"}, [&] { Run(folder_ / "a.tokens", "out"); });
  config_.format = "u32";
  ExpectError({"a.jsonl:1", "format=u32", "loss_mask"},
              [&] { Run(line("{\"input_ids\": [3], \"loss_mask\": [0]}"), "out"); });
  config_.data_options.data_path_filter = "*.txt";
  ExpectError(
      {"data_path_filter", "a.txt is no folder"}, [&] { Run(text, "out"); }, ExitCode::kUsage);
}

}  // namespace
}  // namespace longspan
