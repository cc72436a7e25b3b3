#include "data/sentencepiece.h"

#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <random>

#include "core/file.h"
#include "data/sentencepiece_model.h"
#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

using testing::ExpectError;
using testing::TemporaryDirectory;
using testing::WriteText;
using Ids = std::vector<int32_t>;

class SentencePieceTest : public ::testing::Test {
 protected:
  // Trains a small model; returns its path.
  std::string Train(const std::string& options) {
    std::string text;
    std::mt19937 random(2);
    for (int i = 0; i < 200; ++i) {
      text += "the cat and the dog, in the beginning (was) a word; thethe the-cat 10 3.14 \u00e9t\u00e9";
      for (size_t k = random() % 5; k > 0; --k) {
        text += ' ';
        for (size_t l = random() % 8; l > 0; --l) text += static_cast<char>('a' + random() % 26);
      }
      text += '\n';
    }
    const std::string input = WriteText(folder_ / "text.txt", text);
    const auto status = sentencepiece::SentencePieceTrainer::Train(fmt::format(
        "--input={} --model_prefix={} --hard_vocab_limit=false --minloglevel=2 --num_threads=1 {}", input,
        folder_ / "tokenizer", options));
    Require(status.ok(), "{}: {}", options, status.ToString());
    return folder_ / "tokenizer.model";
  }

  TemporaryDirectory folder_;
};

std::string RandomText(std::mt19937& random) {
  static const std::vector<std::string> kParts = {
      "the",       "cat",        "and",    "dog",     "hat",    "beginning", "(was)",  "word;",
      "10",        "3.14",       "a",      "t",       "x",      "Z",         "!",      " ",
      " ",         " ",          " ",      " ",       "  ",     "   ",       "\n",     "\n\n",
      "\t",        "\r\n",       "\u00e9", "e\u0301", "\u0308", "\u00a0",    "\u3000", "\u2581",
      "\u2581the", "\U0001f999", "\ufb01", "<s>",     "user",   "a b",       " the",   "\u00ad"};
  std::string text;
  for (size_t i = random() % 30; i > 0; --i) text += kParts[random() % kParts.size()];
  return text;
}

TEST_F(SentencePieceTest, IdsAreTheLibrarysWhetherWordByWordOrNot) {
  const struct {
    const char* options;
    const char* seams;
    bool are_kept = false;
  } cases[] = {
      {"--model_type=bpe --vocab_size=320 --byte_fallback=true", " \n"},
      {"--model_type=bpe --vocab_size=100 --character_coverage=0.98", " \n"},
      {"--model_type=bpe --vocab_size=320 --byte_fallback=true --normalization_rule_name=identity "
       "--remove_extra_whitespaces=false --split_digits=true --allow_whitespace_only_pieces=true",
       " "},
      {"--model_type=bpe --vocab_size=100 --normalization_rule_name=nfkc_cf --user_defined_symbols=user,<s2>",
       " "},
      {"--model_type=bpe --vocab_size=100 --user_defined_symbols=\u2581user", ""},
      {"--model_type=bpe --vocab_size=150 --split_by_whitespace=false", ""},
      {"--model_type=bpe --vocab_size=100 --add_dummy_prefix=false", ""},  // a part's first space would go
      {"--model_type=bpe --vocab_size=320 --byte_fallback=true --add_dummy_prefix=false "
       "--remove_extra_whitespaces=false",
       " \n", true},
      // As Gemma's.
      {"--model_type=bpe --vocab_size=320 --byte_fallback=true --add_dummy_prefix=false "
       "--remove_extra_whitespaces=false --normalization_rule_name=identity --split_digits=true "
       "--allow_whitespace_only_pieces=true --user_defined_symbols=\u2581\u2581,\u2581\u2581\u2581,\n,user",
       " ", true},
      {"--model_type=bpe --vocab_size=320 --byte_fallback=true --add_dummy_prefix=false "
       "--remove_extra_whitespaces=false --user_defined_symbols=r\u2581u",
       ""},
      {"--model_type=unigram --vocab_size=60 --add_dummy_prefix=false --remove_extra_whitespaces=false",
       " \n", true},
      {"--model_type=bpe --vocab_size=100 --treat_whitespace_as_suffix=true", ""},
      {"--model_type=unigram --vocab_size=60", " \n"},
      {"--model_type=unigram --vocab_size=60 --split_by_whitespace=false", ""},
  };
  std::mt19937 random(11);
  for (const auto& c : cases) {
    const std::string path = Train(c.options);
    const std::string model = ReadTextFile(path);
    const Seams seams = FindSeams(ReadSentencePieceModel(model, path));
    EXPECT_EQ(seams.characters, c.seams) << c.options;
    EXPECT_EQ(seams.are_kept, c.are_kept) << c.options;
    sentencepiece::SentencePieceProcessor library;
    ASSERT_TRUE(library.Load(path).ok());
    const auto tokenizer = OpenSentencePiece(path);
    for (int i = 0; i < 400; ++i) {
      const std::string text = RandomText(random);
      std::vector<int> wanted;
      ASSERT_TRUE(library.Encode(text, &wanted).ok());
      ASSERT_EQ(tokenizer->Encode(text), wanted) << c.options << ": " << text;
    }
  }
}

TEST_F(SentencePieceTest, WhatTheConfigurationPutsAround) {
  const std::string path = Train("--model_type=bpe --vocab_size=100 --eos_id=-1");
  const auto around = [&](const std::string& config) {
    WriteText(folder_ / "tokenizer_config.json", config);
    const auto tokenizer = OpenTokenizer(folder_.path());
    return std::pair(tokenizer->document_prefix().size(), tokenizer->document_suffix().size());
  };
  EXPECT_EQ(around("{}"), std::pair(size_t{1}, size_t{0}));
  EXPECT_EQ(around("{\"add_bos_token\": null, \"add_eos_token\": false}"), std::pair(size_t{1}, size_t{0}));
  EXPECT_EQ(around("{\"add_bos_token\": false}"), std::pair(size_t{0}, size_t{0}));
  ExpectError({path, "add_eos_token"}, [&] { around("{\"add_eos_token\": true}"); });
  ExpectError({"tokenizer_config.json.add_bos_token is 1"}, [&] { around("{\"add_bos_token\": 1}"); });
  ExpectError({"tokenizer_config.json is []"}, [&] { around("[]"); });
  Train("--model_type=bpe --vocab_size=100");
  WriteText(folder_ / "tokenizer_config.json", "{\"add_eos_token\": true}");
  const auto tokenizer = OpenTokenizer(folder_.path());
  ASSERT_EQ(tokenizer->document_suffix().size(), 1u);
  EXPECT_EQ(tokenizer->document_suffix()[0], 2) << "</s>";
  EXPECT_EQ(OpenTokenizer(path)->document_suffix().size(), 0u) << "the file alone says nothing of it";
}

TEST_F(SentencePieceTest, DamagedModelsAreRefused) {
  const std::string path = Train("--model_type=bpe --vocab_size=100");
  const std::string whole = ReadTextFile(path);
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    const std::string cut = whole.substr(0, random() % whole.size());
    try {
      ReadSentencePieceModel(cut, "here");
    } catch (const Error& e) {
      EXPECT_TRUE(std::string_view(e.what()).starts_with("here is damaged")) << e.what();
    }
  }
  // Damaged where the normalizer's rules are, most of it: refused, or of other ids, but no harm is done.
  int num_refused = 0;
  for (int i = 0; i < 100; ++i) {
    std::string damaged = whole;
    damaged[damaged.size() - 1 - random() % 100'000] ^= static_cast<char>(1 << random() % 8);
    try {
      OpenTokenizer(WriteText(folder_ / "damaged.model", damaged))
          ->Encode("\u00e9t\u00e9 \ufb01 \u3000(was) Z");
    } catch (const Error&) {
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 0);
  ExpectError({"here"},
              [] { ReadSentencePieceModel("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "here"); });
  ExpectError({"here"}, [] { ReadSentencePieceModel(std::string_view("\x0A\xFF\x7F", 3), "here"); });
}

}  // namespace
}  // namespace longspan
