#include "data/tokenizer.h"

#include <gtest/gtest.h>
#include <sentencepiece_trainer.h>

#include <thread>

#include "core/file.h"
#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

using Ids = std::vector<int32_t>;
using testing::ExpectError;
using testing::WriteText;

TEST(ByteTokenizer, EveryByteIsItsValue) {
  const auto tokenizer = MakeByteTokenizer();
  std::string text;
  for (int i = 0; i < 256; ++i) text.push_back(static_cast<char>(i));
  const Ids ids = tokenizer->Encode(text);
  ASSERT_EQ(ids.size(), 256u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[static_cast<size_t>(i)], i);
  EXPECT_EQ(tokenizer->Decode(ids), text);
  EXPECT_EQ(tokenizer->vocab_size(), 256);
  EXPECT_TRUE(tokenizer->Encode("").empty());
}

TEST(ByteTokenizer, RefusesIdsThatAreNoBytes) {
  const auto tokenizer = MakeByteTokenizer();
  for (const int32_t id : {-1, 256})
    ExpectError({std::to_string(id), "255"}, [&] { tokenizer->Decode(Ids{65, id}); });
}

TEST(TokenStream, GivesWholeCharacters) {
  const auto tokenizer = MakeByteTokenizer();
  TokenStream stream(*tokenizer);
  const auto next = [&](unsigned char byte) { return stream.Next(byte); };
  EXPECT_EQ(next('a'), "a");
  EXPECT_EQ(next(0xF0), "");
  EXPECT_EQ(next(0x9F), "");
  EXPECT_EQ(next(0xA6), "");
  EXPECT_EQ(next(0x99), "\U0001f999");
  EXPECT_EQ(next(0xC3), "");
  EXPECT_EQ(next('b'), "\ufffdb");
  EXPECT_EQ(next(0xFF), "\ufffd");
  EXPECT_EQ(next(0xE4), "");
  EXPECT_EQ(next(0xB8), "");
  EXPECT_EQ(stream.Finish(), "\ufffd");
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_EQ(next('c'), "c");
}

// A file in which every byte is a token, and `tokens` follow.
std::string TiktokenFile(const std::vector<std::string>& tokens_in_base64) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string file;
  for (size_t byte = 0; byte < 256; ++byte)
    file += fmt::format("{}{}== {}\n", kDigits[byte >> 2], kDigits[(byte & 3) << 4], byte);
  for (size_t i = 0; i < tokens_in_base64.size(); ++i)
    file += fmt::format("{} {}\n", tokens_in_base64[i], 256 + i);
  return file;
}

class OpenTokenizerTest : public ::testing::Test {
 protected:
  // "ab", " a", "aab", and "aca", to which no merge leads
  const std::string ranks_ = TiktokenFile({"YWI=", "IGE=", "YWFi", "YWNh"});
  testing::TemporaryDirectory folder_;
};

TEST_F(OpenTokenizerTest, TiktokenByItsName) {
  const auto tokenizer = OpenTokenizer(WriteText(folder_ / "cl100k_base.tiktoken", ranks_));
  EXPECT_EQ(tokenizer->Encode("ab a ab"), (Ids{256, 257, ' ', 256})) << "the lowest rank first";
  EXPECT_EQ(tokenizer->Encode("aabb"), (Ids{258, 'b'}));
  EXPECT_EQ(tokenizer->Encode("aca"), (Ids{259})) << "a whole piece that is a token";
  EXPECT_EQ(tokenizer->Encode("acab"), (Ids{'a', 'c', 256}));
  EXPECT_EQ(tokenizer->Encode("<|fim_prefix|>").size(), 14u) << "special tokens are text";
  EXPECT_EQ(tokenizer->EncodeWithSpecialTokens("ab<|fim_prefix|>"), (Ids{256, 100258}));
  EXPECT_EQ(tokenizer->Decode(Ids{256, 100258, 0xC3}), "ab<|fim_prefix|>\xC3");
  EXPECT_EQ(tokenizer->vocab_size(), 100277);
  EXPECT_TRUE(tokenizer->document_prefix().empty());
  ExpectError({"100256", "100277"}, [&] { tokenizer->Decode(Ids{100256}); });
}

TEST_F(OpenTokenizerTest, TiktokenByAPattern) {
  const std::string path = WriteText(folder_ / "my.tiktoken", ranks_);
  EXPECT_EQ(OpenTokenizer(path, "r50k_base")->vocab_size(), 50257);
  const auto tokenizer = OpenTokenizer(path, "[a-z]+");
  EXPECT_EQ(tokenizer->Encode("ab, ab"), (Ids{256, 256})) << "what the pattern does not match is left out";
  EXPECT_EQ(tokenizer->vocab_size(), 260);
  ExpectError(
      {path, "tokenizer_pattern", "cl100k_base"}, [&] { OpenTokenizer(path); }, ExitCode::kUsage);
  ExpectError({path, "[a-", "without end"}, [&] { OpenTokenizer(path, "[a-"); });
}

TEST_F(OpenTokenizerTest, BrokenTiktokenFiles) {
  const auto refuse = [&](std::initializer_list<std::string_view> parts, const std::string& text) {
    const std::string path = WriteText(folder_ / "r50k_base.tiktoken", text);
    ExpectError(parts, [&] { OpenTokenizer(path); });
  };
  refuse({"r50k_base.tiktoken", "0x00"}, "");
  refuse({":257", "rank"}, TiktokenFile({}) + "YWI=\n");
  refuse({":257", "base64"}, TiktokenFile({}) + "YWI 256\n");
  refuse({":257", "base64"}, TiktokenFile({}) + "Y*I= 256\n");
  refuse({":257", "'x'"}, TiktokenFile({}) + "YWI= x\n");
  refuse({":257", "-1"}, TiktokenFile({}) + "YWI= -1\n");
  refuse({":257", "16777216"}, TiktokenFile({}) + "YWI= 16777216\n");
  refuse({":257", "99999999999999999999"}, TiktokenFile({}) + "YWI= 99999999999999999999\n");
  refuse({":257", "255", "twice"}, TiktokenFile({}) + "YWI= 255\n");
  refuse({":258", "token", "twice"}, TiktokenFile({"YWI="}) + "YWI= 257\n");
  refuse({"50256", "<|endoftext|>"}, TiktokenFile({}) + "YWI= 50256\n");
}

TEST_F(OpenTokenizerTest, SentencePiece) {
  const std::string text =
      WriteText(folder_ / "text.txt", std::string(50, 'x') + "\nthe cat and the dog and the hat\n");
  const std::string model = folder_ / "tokenizer.model";
  ASSERT_TRUE(
      sentencepiece::SentencePieceTrainer::Train(
          fmt::format("--input={} --model_prefix={} --model_type=bpe --vocab_size=290 --byte_fallback=true "
                      "--hard_vocab_limit=false --minloglevel=2 --num_threads=1",
                      text, folder_ / "tokenizer"))
          .ok());
  const auto tokenizer = OpenTokenizer(folder_.path());
  for (const std::string whole : {"the cat", "the \u00e9\U0001f999 hat", "a"}) {
    const Ids ids = tokenizer->Encode(whole);
    EXPECT_EQ(tokenizer->Decode(ids), whole) << "the space put in front is left out again";
    TokenStream stream(*tokenizer);
    std::string streamed;
    for (const int32_t id : ids) streamed += stream.Next(id);
    EXPECT_EQ(streamed + stream.Finish(), whole);
  }
  ASSERT_EQ(tokenizer->document_prefix().size(), 1u);
  EXPECT_EQ(tokenizer->document_prefix()[0], 1) << "<s>";
  EXPECT_EQ(tokenizer->Decode(Ids{1}), "");
  ExpectError({"UTF-8"}, [&] { tokenizer->Encode("a\xFF"); });
  ExpectError({"special"}, [&] { tokenizer->EncodeWithSpecialTokens("<s>"); });
  ExpectError({"no token", std::to_string(tokenizer->vocab_size())},
              [&] { tokenizer->Decode(Ids{static_cast<int32_t>(tokenizer->vocab_size())}); });

  std::string bytes = ReadTextFile(model);
  WriteText(model, bytes.substr(0, bytes.size() / 2));
  ExpectError({model, "SentencePiece"}, [&] { OpenTokenizer(model); });
  WriteText(model, ranks_);
  ExpectError({model, "*.tiktoken"}, [&] { OpenTokenizer(model); });
  ExpectError(
      {model, "tokenizer_pattern"}, [&] { OpenTokenizer(model, "x"); }, ExitCode::kUsage);
}

TEST_F(OpenTokenizerTest, DirectoriesAndOtherPaths) {
  ExpectError({folder_.path(), "tokenizer.json"}, [&] { OpenTokenizer(folder_.path()); });
  WriteText(folder_ / "r50k_base.tiktoken", ranks_);
  EXPECT_EQ(OpenTokenizer(folder_.path())->vocab_size(), 50257);
  WriteText(folder_ / "o200k_base.tiktoken", ranks_);
  ExpectError({"several", "o200k_base.tiktoken, ", "r50k_base.tiktoken"},
              [&] { OpenTokenizer(folder_.path()); });
  WriteText(folder_ / "tokenizer.json", "{");
  ExpectError({"tokenizer.json", "JSON"}, [&] { OpenTokenizer(folder_.path()); });
  ExpectError({"missing.json"}, [&] { OpenTokenizer(folder_ / "missing.json"); });
  ExpectError({"vocab.txt", "*.tiktoken"}, [&] { OpenTokenizer(WriteText(folder_ / "vocab.txt", "a")); });
}

TEST_F(OpenTokenizerTest, ThreadsShareATokenizer) {
  const auto tokenizer = OpenTokenizer(WriteText(folder_ / "r50k_base.tiktoken", ranks_));
  std::string text;
  for (int i = 0; i < 3000; ++i) text += fmt::format("ab aab {} ", i);
  const Ids wanted = tokenizer->Encode(text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& ids : results) threads.emplace_back([&] { ids = tokenizer->Encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : results) EXPECT_EQ(ids, wanted);
}

}  // namespace
}  // namespace longspan
