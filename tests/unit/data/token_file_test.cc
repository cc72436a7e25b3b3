#include "data/token_file.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <random>

#include "data/token_file_format.h"
#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

using testing::ExpectError;
using testing::TemporaryDirectory;
using testing::WriteText;
using Ids = std::vector<int32_t>;

constexpr int32_t kNone = kIgnoreTarget;

// Ids stand for themselves, in letters; none below `first`.
class FakeTokenizer final : public Tokenizer {
 public:
  explicit FakeTokenizer(int64_t vocab_size, int32_t first = 0) : vocab_size_(vocab_size), first_(first) {}
  int64_t vocab_size() const override { return vocab_size_; }
  void AppendToken(int32_t id, bool, std::string* bytes) const override {
    Require(id >= first_, "no such token");
    *bytes += std::to_string(id);
  }

 private:
  Ids DoEncode(std::string_view, bool) const override { return {}; }
  int64_t vocab_size_;
  int32_t first_;
};

struct Sample {
  Ids ids;
  std::vector<bool> mask;
  int64_t file, line;
};

std::vector<Sample> RandomSamples(int64_t num_documents, int64_t max_size, int64_t vocab_size, bool masks) {
  std::mt19937 random(static_cast<unsigned>(num_documents + max_size));
  std::vector<Sample> samples;
  for (int64_t i = 0; i < num_documents; ++i) {
    Sample sample{Ids(1 + random() % static_cast<uint64_t>(max_size)), {}, i / 3, i % 3};
    for (int32_t& id : sample.ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab_size));
    if (masks && random() % 2 == 0)
      for (size_t k = 0; k < sample.ids.size(); ++k) sample.mask.push_back(random() % 3 != 0);
    samples.push_back(std::move(sample));
  }
  return samples;
}

class TokenFileTest : public ::testing::Test {
 protected:
  // Names of files: "f0", "f1", ….
  std::string Write(const std::vector<Sample>& samples, int64_t vocab_size,
                    const std::string& name = "a.tokens") {
    const std::string path = folder_ / name;
    std::filesystem::remove(path);
    TokenFileWriter writer(path, vocab_size, TokenizerFingerprint(FakeTokenizer(vocab_size)));
    std::vector<std::string> names;
    for (const Sample& sample : samples) {
      while (static_cast<int64_t>(names.size()) <= sample.file)
        names.push_back("f" + std::to_string(names.size()));
      writer.Add(sample.ids, sample.mask, sample.file, sample.line);
    }
    writer.Finish(names);
    EXPECT_EQ(writer.size(), static_cast<int64_t>(std::filesystem::file_size(path)));
    return path;
  }
  static std::unique_ptr<Corpus> Open(const std::string& path, int64_t vocab_size) {
    return OpenTokenFile(path, FakeTokenizer(vocab_size), vocab_size);
  }
  static void ReadAll(const Corpus& corpus) {
    for (int64_t i = 0; i < corpus.num_documents(); ++i) {
      Ids ids(static_cast<size_t>(corpus.num_tokens(i)));
      corpus.ReadLabels(i, 0, ids);
    }
  }

  TemporaryDirectory folder_;
};

TEST_F(TokenFileTest, WhatIsWrittenIsRead) {
  std::mt19937 random(1);
  for (const int64_t vocab_size : {int64_t{300}, int64_t{65536}, int64_t{65537}, int64_t{200000}})
    for (const bool masks : {false, true})
      for (const auto& [num_documents, max_size] : {std::pair{1, 1}, {7, 9}, {40, 20000}}) {
        const std::vector<Sample> samples = RandomSamples(num_documents, max_size, vocab_size, masks);
        const auto corpus = Open(Write(samples, vocab_size), vocab_size);
        ASSERT_EQ(corpus->num_documents(), num_documents);
        for (int64_t i = 0; i < num_documents; ++i) {
          const Sample& sample = samples[static_cast<size_t>(i)];
          ASSERT_EQ(corpus->num_tokens(i), static_cast<int64_t>(sample.ids.size()));
          // A part of it, as a reader takes it.
          const size_t begin = random() % sample.ids.size(),
                       size = 1 + random() % (sample.ids.size() - begin);
          Ids ids(size), labels(size);
          corpus->ReadTokens(i, static_cast<int64_t>(begin), ids);
          corpus->ReadLabels(i, static_cast<int64_t>(begin), labels);
          for (size_t k = 0; k < size; ++k) {
            ASSERT_EQ(ids[k], sample.ids[begin + k]);
            ASSERT_EQ(labels[k], sample.mask.empty() || sample.mask[begin + k] ? ids[k] : kNone);
          }
          EXPECT_NE(corpus->DocumentName(i).find("f" + std::to_string(i / 3)), std::string::npos);
          if (i % 3 != 0) {
            EXPECT_NE(corpus->DocumentName(i).find(":" + std::to_string(i % 3)), std::string::npos);
          }
        }
      }
}

TEST_F(TokenFileTest, IdsTakeTwoBytesWhereTheyFit) {
  const std::vector<Sample> samples = {{Ids(100000, 7), {}, 0, 0}};
  const auto size = [&](int64_t vocab_size) {
    return static_cast<int64_t>(std::filesystem::file_size(Write(samples, vocab_size)));
  };
  EXPECT_NEAR(size(65536), 200000, 300);
  EXPECT_NEAR(size(65537), 400000, 300);
}

TEST_F(TokenFileTest, NothingBesideTheDocumentsRangeIsRead) {
  const auto corpus = Open(Write({{{1, 2, 3}, {}, 0, 0}, {{4}, {}, 0, 1}}, 10), 10);
  Ids ids(2);
  EXPECT_THROW(corpus->ReadTokens(0, 2, ids), std::logic_error);
  EXPECT_THROW(corpus->ReadLabels(1, 0, ids), std::logic_error);
  EXPECT_THROW(corpus->num_tokens(2), std::logic_error);
  corpus->ReadTokens(1, 1, {});
  corpus->ReadLabels(1, 1, {});
}

TEST_F(TokenFileTest, TheModelMustFit) {
  const std::string path = Write({{{1, 2}, {}, 0, 0}}, 300);
  ExpectError({path, "300 ids", "vocab_size is 299"}, [&] { OpenTokenFile(path, FakeTokenizer(300), 299); });
  ExpectError({path, "another tokenizer", "tokenizer_path"},
              [&] { OpenTokenFile(path, FakeTokenizer(300, 1), 300); });
  OpenTokenFile(path, FakeTokenizer(300), 400);       // a padded vocabulary
  OpenTokenFile(path, *MakeByteTokenizer(), 300);     // bytes stand for no tokenizer
  OpenTokenFile(path, FakeTokenizer(300, 300), 300);  // one that cannot say its tokens
}

TEST_F(TokenFileTest, AnyDamageIsFound) {
  const std::string path = Write(RandomSamples(20, 8000, 1000, true), 1000);
  const std::string whole = ReadTextFile(path);
  const auto expect_damage = [&](const std::string& content) {
    ExpectError({path, "no whole token file"}, [&] { ReadAll(*Open(WriteText(path, content), 1000)); });
  };
  for (const size_t size :
       {size_t{0}, size_t{31}, size_t{32}, size_t{95}, whole.size() / 2, whole.size() - 1})
    expect_damage(whole.substr(0, size));
  expect_damage(whole + "x");
  expect_damage(whole.substr(0, whole.size() - 64) + std::string(8, '\0') + whole.substr(whole.size() - 64));
  std::mt19937 random(3);
  for (int i = 0; i < 40; ++i) {  // a bit anywhere behind the start, whose last bytes say nothing
    std::string damaged = whole;
    const size_t place =
        32 + (i < 20 ? random() % (whole.size() - 32) : whole.size() - 32 - 1 - random() % 400);
    damaged[place] = static_cast<char>(damaged[place] ^ 1 << random() % 8);
    expect_damage(damaged);
  }
  std::string other = whole;
  other[16] = 2;
  ExpectError({path, "version 2", "version 1"}, [&] { Open(WriteText(path, other), 1000); });
}

TEST_F(TokenFileTest, OpeningReadsNoIds) {
  const std::string path = Write(RandomSamples(20, 60000, 1000, false), 1000);
  std::string damaged = ReadTextFile(path);
  damaged[damaged.size() / 2] ^= 1;
  const auto corpus = Open(WriteText(path, damaged), 1000);
  Ids ids(10);
  corpus->ReadTokens(0, 0, ids);  // far from there
  ExpectError({path, "bytes at"}, [&] { ReadAll(*corpus); });
}

// Made by hand, with every check right.
TEST_F(TokenFileTest, NumbersThatDoNotFitTogetherAreRefused) {
  const std::string path = Write({{{1, 2, 3, 4}, {}, 0, 0}, {{5, 6, 7, 8}, {}, 0, 1}}, 10);
  const std::string whole = ReadTextFile(path);
  // Start 32, ids 16, one check 8, ends 16, places 16, name's end 8, name 8, footer.
  ASSERT_EQ(whole.size(), 32u + 16 + 8 + 16 + 16 + 8 + 8 + 64);
  const auto forge = [&](size_t place, uint32_t value) {
    std::string forged = whole;
    std::memcpy(forged.data() + place, &value, sizeof(value));
    const auto check = [&](size_t begin, size_t end) {
      return static_cast<uint32_t>(
          crc32_z(0, reinterpret_cast<const Bytef*>(forged.data()) + begin, end - begin));
    };
    const auto put = [&](size_t at, uint32_t number) {
      std::memcpy(forged.data() + at, &number, sizeof(number));
    };
    put(48, check(32, 48));
    const size_t footer = whole.size() - 64;
    put(footer + 56, check(48, footer));
    put(footer + 60, check(footer, footer + 60));
    return WriteText(path, forged);
  };
  const auto refused = [&](size_t place, uint32_t value) {
    ExpectError({path, "no whole token file"}, [&] { ReadAll(*Open(forge(place, value), 10)); });
  };
  ReadAll(*Open(forge(32, 1), 10));  // unchanged: the forger knows the format
  const size_t ends = 56, places = 72, name_end = 88, footer = whole.size() - 64;
  refused(32, 10);                // an id outside of the vocabulary
  refused(ends, 0);               // an empty document
  refused(ends, 9);               // documents out of order
  refused(ends + 8, 7);           // tokens of no document
  refused(ends + 4, 0x80000000);  // an end far outside
  refused(places, 1);             // a file without a name
  refused(name_end, 1);           // a name that ends early
  refused(name_end, 1000);        // or late
  refused(footer, 9);             // numbers of tokens, documents, files, bytes of names
  refused(footer + 4, 0x80000000);
  refused(footer + 8, 3);
  refused(footer + 12, 0x10000000);
  refused(footer + 16, 2);
  refused(footer + 24, 9);
  refused(footer + 48, 3);  // bytes of an id
  refused(footer + 48, 4);
  refused(footer + 52, 1);  // a mask
  refused(footer + 52, 2);
}

TEST_F(TokenFileTest, KnownByNameOrByItsBeginning) {
  const std::string named = Write({{{1}, {}, 0, 0}}, 10), other = Write({{{1}, {}, 0, 0}}, 10, "a.bin");
  const std::string text = WriteText(folder_ / "a.txt", "longspan tokens");
  EXPECT_TRUE(IsTokenFile(named, true));
  EXPECT_TRUE(IsTokenFile(named, false));
  EXPECT_FALSE(IsTokenFile(other, true));
  EXPECT_TRUE(IsTokenFile(other, false));
  EXPECT_FALSE(IsTokenFile(text, false));
  EXPECT_FALSE(IsTokenFile(folder_ / "missing", false));
}

TEST_F(TokenFileTest, WithoutFinishThereIsNoFile) {
  { TokenFileWriter(folder_ / "b.tokens", 10, 0).Add(Ids{1}, {}, 0, 0); }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "b.tokens"));
}

}  // namespace
}  // namespace longspan
