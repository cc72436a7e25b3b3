#include "data/corpus.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "support/compress.h"
#include "support/expect_error.h"
#include "support/files.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using testing::ExpectError;
using testing::Gzip;
using testing::TemporaryDirectory;
using testing::WriteText;
using testing::Zstd;

constexpr int64_t kVocabulary = 256;
constexpr int32_t kNone = kIgnoreTarget;
using Ids = std::vector<int32_t>;

// Two letters a token: stands for the tokenizers that are not bytes.
class PairTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return 200; }
  void AppendToken(int32_t, bool, std::string*) const override {}

 private:
  Ids DoEncode(std::string_view text, bool) const override {
    Require(text.size() % 2 == 0, "an odd number of letters");
    Ids ids;
    for (size_t i = 0; i < text.size(); i += 2) ids.push_back(text[i] + text[i + 1] - 2 * 'a');
    return ids;
  }
};

class CorpusTest : public ::testing::Test {
 protected:
  std::unique_ptr<Corpus> Open(const std::string& path, int64_t vocab_size = kVocabulary) const {
    return OpenCorpus(path, *tokenizer_, vocab_size, options_);
  }

  TemporaryDirectory folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
  DataOptions options_;
};

Ids Tokens(const Corpus& corpus, int64_t document) {
  Ids ids(static_cast<size_t>(corpus.num_tokens(document)));
  corpus.ReadTokens(document, 0, ids);
  return ids;
}

Ids Labels(const Corpus& corpus, int64_t document) {
  Ids labels(static_cast<size_t>(corpus.num_tokens(document)));
  corpus.ReadLabels(document, 0, labels);
  return labels;
}

std::string Text(const Corpus& corpus, int64_t document) {
  return MakeByteTokenizer()->Decode(Tokens(corpus, document));
}

TEST_F(CorpusTest, ATextFileIsOneDocument) {
  const std::string path = WriteText(folder_ / "book.txt", "In the\r\nbeginning\xff");
  const auto corpus = Open(path);
  ASSERT_EQ(corpus->num_documents(), 1);
  EXPECT_EQ(Text(*corpus, 0), "In the\r\nbeginning\xff");
  EXPECT_EQ(Labels(*corpus, 0), Tokens(*corpus, 0));
  EXPECT_EQ(corpus->DocumentName(0), path);
  Ids part(3);
  corpus->ReadTokens(0, 4, part);
  EXPECT_EQ(part, (Ids{'h', 'e', '\r'}));
  corpus->ReadLabels(0, 17, std::span(part).first(1));
  EXPECT_EQ(part[0], 0xff);
  EXPECT_THROW(corpus->ReadTokens(0, 16, part), std::logic_error);
}

TEST_F(CorpusTest, ALargeTextReadsTheSame) {
  std::string text;
  for (int i = 0; text.size() < (3 << 20); ++i) text += std::to_string(i) + ' ';
  const auto corpus = Open(WriteText(folder_ / "large.txt", text));
  ASSERT_EQ(corpus->num_documents(), 1);
  EXPECT_EQ(Text(*corpus, 0), text);
}

TEST_F(CorpusTest, AFileThatIsNamedIsTakenAsItIs) {
  const auto corpus = Open(WriteText(folder_ / "data.bin", std::string_view("a\0b", 3)));
  EXPECT_EQ(Tokens(*corpus, 0), (Ids{'a', 0, 'b'}));
}

TEST_F(CorpusTest, JsonlLinesAreDocuments) {
  const std::string path = WriteText(folder_ / "a.jsonl",
                                     "{\"text\": \"ab\"}\r\n"
                                     "\n \t\r\n"
                                     "{\"input_ids\": []}\n"
                                     "{\"input_ids\": [], \"labels\": []}\n"
                                     "{\"input_ids\": [1, 2, 3], \"labels\": [-100, 9, 3]}\n"
                                     "{\"text\": \"\"}\n"
                                     "{\"input_ids\": [4, 5]}\n"
                                     "{\"input_ids\": [6, 7], \"loss_mask\": [0, 1]}");
  const auto corpus = Open(path);
  ASSERT_EQ(corpus->num_documents(), 4);
  EXPECT_EQ(Text(*corpus, 0), "ab");
  EXPECT_EQ(Labels(*corpus, 0), (Ids{'a', 'b'}));
  EXPECT_EQ(Tokens(*corpus, 1), (Ids{1, 2, 3}));
  EXPECT_EQ(Labels(*corpus, 1), (Ids{kNone, 9, 3}));
  EXPECT_EQ(Tokens(*corpus, 2), (Ids{4, 5}));
  EXPECT_EQ(Labels(*corpus, 2), (Ids{4, 5}));
  EXPECT_EQ(Tokens(*corpus, 3), (Ids{6, 7}));
  EXPECT_EQ(Labels(*corpus, 3), (Ids{kNone, 7}));
  EXPECT_EQ(corpus->DocumentName(0), path + ":1");
  EXPECT_EQ(corpus->DocumentName(1), path + ":6");
  EXPECT_EQ(corpus->DocumentName(3), path + ":9");
  EXPECT_EQ(corpus->total_tokens(), 9);
  Ids part(2);
  corpus->ReadLabels(1, 1, part);
  EXPECT_EQ(part, (Ids{9, 3}));
  corpus->ReadTokens(1, 1, part);
  EXPECT_EQ(part, (Ids{2, 3}));
  corpus->ReadLabels(2, 1, std::span(part).first(1));
  EXPECT_EQ(part[0], 5);
}

TEST_F(CorpusTest, AFolderIsReadInByteOrderOfPaths) {
  WriteText(folder_ / "d/b.txt", "1");
  WriteText(folder_ / "d/B.md", "0");
  WriteText(folder_ / "d/b/z.txt", "3");
  WriteText(folder_ / "d/b-.cc", "2a");
  WriteText(folder_ / "d/c.jsonl", "{\"text\": \"4\"}\n{\"text\": \"5\"}\n");
  WriteText(folder_ / "d/\xc3\xa9", "6");
  WriteText(folder_ / "d/empty", "");
  WriteText(folder_ / "d/.hidden", "no");
  WriteText(folder_ / "d/.git/config", "no");
  WriteText(folder_ / "d/image.png", std::string_view("PNG\0", 4));
  WriteText(folder_ / "d/late.txt", std::string(8191, 'x') + std::string(1, '\0'));
  WriteText(folder_ / "d/later",
            std::string(8192, 'y') + std::string(1, '\0'));  // outside of what is looked at
  fs::create_directory_symlink("..", folder_ / "d/loop");
  for (const std::string path : {"d", "d/", "d/../d"}) {
    const auto corpus = Open(folder_ / path);
    std::string all;
    for (int64_t i = 0; i < corpus->num_documents(); ++i) all += Text(*corpus, i).substr(0, 2) + "|";
    EXPECT_EQ(all, "0|2a|1|3|4|5|yy|6|") << path;
    EXPECT_EQ(corpus->file_counts().binary, 2);
  }
}

TEST_F(CorpusTest, LinksToFilesAreFollowed) {
  WriteText(folder_ / "blobs/a", "text");
  fs::create_directory(folder_ / "d");
  fs::create_symlink("../blobs/a", folder_ / "d/a.txt");
  EXPECT_EQ(Text(*Open(folder_ / "d"), 0), "text");
  fs::create_symlink("nowhere", folder_ / "d/b.txt");
  ExpectError({"d/b.txt", "No such file"}, [&] { Open(folder_ / "d"); });
  fs::remove(folder_ / "d/b.txt");
  fs::create_symlink("c.txt", folder_ / "d/c.txt");
  ExpectError({"d/c.txt", "circle"}, [&] { Open(folder_ / "d"); });
}

TEST_F(CorpusTest, OtherTokenizersEncode) {
  tokenizer_ = std::make_unique<PairTokenizer>();
  WriteText(folder_ / "d/a.txt", "aabbcd");
  const std::string lines = WriteText(folder_ / "d/b.jsonl", "{\"text\": \"zz\"}\n{\"text\": \"\"}\n");
  const auto corpus = Open(folder_ / "d");
  ASSERT_EQ(corpus->num_documents(), 2);
  EXPECT_EQ(Tokens(*corpus, 0), (Ids{0, 2, 5}));
  EXPECT_EQ(Tokens(*corpus, 1), (Ids{50}));
  WriteText(folder_ / "d/b.jsonl", "{\"text\": \"zz\"}\n{\"text\": \"z\"}\n");
  ExpectError({lines + ":2: an odd number"}, [&] { Open(folder_ / "d"); });
}

// All documents in order, with "|" behind each.
std::string Texts(const Corpus& corpus) {
  std::string all;
  for (int64_t i = 0; i < corpus.num_documents(); ++i) all += Text(corpus, i) + "|";
  return all;
}

TEST_F(CorpusTest, CompressedFilesReadLikeOthers) {
  EXPECT_EQ(Texts(*Open(WriteText(folder_ / "a.txt.gz", Gzip("one")))), "one|");
  EXPECT_EQ(Texts(*Open(WriteText(folder_ / "a.txt.zst", Zstd("two")))), "two|");
  EXPECT_EQ(Texts(*Open(WriteText(folder_ / "a.gz", Gzip("{\"text\": \"x\"}")))), "{\"text\": \"x\"}|");
  WriteText(folder_ / "d/a.jsonl.gz", Gzip("{\"text\": \"x\"}\n") + Gzip("{\"text\": \"y\"}"));
  WriteText(folder_ / "d/b.jsonl.zst", Zstd("{\"text\": \"z\"}\n"));
  WriteText(folder_ / "d/c.gz", Gzip("text"));
  WriteText(folder_ / "d/d.tar.gz", Gzip(std::string(2000, '\0')));
  const auto corpus = Open(folder_ / "d");
  EXPECT_EQ(Texts(*corpus), "x|y|z|text|");
  EXPECT_EQ(corpus->DocumentName(1), folder_ / "d/a.jsonl.gz:2");
  EXPECT_EQ(corpus->file_counts().binary, 1);
  EXPECT_EQ(corpus->file_counts().files, 3);
  const std::string cut = Gzip("{\"text\": \"x\"}\n").substr(0, 20);
  ExpectError({"d/e.jsonl.gz", "ends before"}, [&] {
    WriteText(folder_ / "d/e.jsonl.gz", cut);
    Open(folder_ / "d");
  });
  // Lines that are longer than what is read at once.
  const std::string text(1000000, 'a');
  const std::string lines = "\n{\"text\": \"b\"}\n{\"text\": \"" + text + "\"}\n\n{\"text\": \"c\"}";
  const auto long_lines = Open(WriteText(folder_ / "l.jsonl.gz", Gzip(lines)));
  EXPECT_TRUE(Texts(*long_lines) == "b|" + text + "|c|");
  EXPECT_EQ(long_lines->DocumentName(2), folder_ / "l.jsonl.gz:5");
}

TEST_F(CorpusTest, FilesOfARepositoryAreOneDocument) {
  WriteText(folder_ / "d/one/b/z.h", "3\n");
  WriteText(folder_ / "d/one/a.c", "1");
  WriteText(folder_ / "d/one/b.jsonl", "{}");
  WriteText(folder_ / "d/one/c.c", "4");
  WriteText(folder_ / "d/one/image", std::string_view("\0", 1));
  WriteText(folder_ / "d/one-more/x.c", "5");
  WriteText(folder_ / "d/only-binary/x.c", std::string_view("\0", 1));
  WriteText(folder_ / "d/README", "6");
  options_.data_document = "repository";
  const auto corpus = Open(folder_ / "d");
  EXPECT_EQ(Texts(*corpus), "6|5|1\n{}\n3\n4|");
  EXPECT_EQ(corpus->DocumentName(2), folder_ / "d/one/");
  EXPECT_EQ(corpus->file_counts().files, 6);
  EXPECT_EQ(corpus->file_counts().binary, 2);
  options_.data_file_header = "// FILE: {path}";
  options_.data_path_filter = "*.c,*.h";
  const auto filtered = Open(folder_ / "d/");
  EXPECT_EQ(Texts(*filtered),
            "// FILE: one-more/x.c\n5|// FILE: one/a.c\n1\n// FILE: one/b/z.h\n3\n// FILE: one/c.c\n4|");
  EXPECT_EQ(filtered->file_counts().left_out, 3);
  WriteText(folder_ / "d/one/x.tokens", "x");
  options_ = {};
  options_.data_document = "repository";
  ExpectError(
      {"one/x.tokens", "data_document=file"}, [&] { Open(folder_ / "d"); }, ExitCode::kUsage);
}

TEST_F(CorpusTest, HeadersStandBeforeTextsOnly) {
  WriteText(folder_ / "d/a.txt", "text");
  WriteText(folder_ / "d/b.jsonl", "{\"text\": \"line\"}");
  options_.data_file_header = "[{path}]";
  EXPECT_EQ(Texts(*Open(folder_ / "d")), "[a.txt]\ntext|line|");
}

TEST_F(CorpusTest, InvalidUtf8) {
  WriteText(folder_ / "d/a.txt", "abcd");
  const std::string latin = WriteText(folder_ / "d/b.txt",
                                      "ab\xe9"
                                      "cd\xf0\x9f");
  EXPECT_EQ(Open(folder_ / "d")->num_documents(), 2);  // bytes are bytes
  options_.data_invalid_utf8 = "skip";
  auto corpus = Open(folder_ / "d");
  EXPECT_EQ(Texts(*corpus), "abcd|");
  EXPECT_EQ(corpus->file_counts().not_utf8, 1);
  options_.data_invalid_utf8 = "replace";
  corpus = Open(folder_ / "d");
  EXPECT_EQ(Texts(*corpus), "abcd|ab\uFFFDcd\uFFFD|");
  EXPECT_EQ(corpus->file_counts().mended, 1);
  EXPECT_EQ(corpus->file_counts().files, 2);
  tokenizer_ = std::make_unique<PairTokenizer>();
  options_.data_invalid_utf8 = "error";
  ExpectError({latin + ": not UTF-8 at byte 2 (0xE9)", "data_invalid_utf8"}, [&] { Open(folder_ / "d"); });
  options_.data_invalid_utf8 = "skip";
  EXPECT_EQ(Tokens(*Open(folder_ / "d"), 0), (Ids{1, 5}));
}

TEST_F(CorpusTest, Refusals) {
  ExpectError({"missing.txt"}, [&] { Open(folder_ / "missing.txt"); });
  ExpectError({"empty.txt", "no tokens"}, [&] { Open(WriteText(folder_ / "empty.txt", "")); });
  ExpectError({"empty.jsonl", "no tokens"},
              [&] { Open(WriteText(folder_ / "empty.jsonl", "\n{\"input_ids\": []}\n")); });
  WriteText(folder_ / "d/image.png", std::string_view("PNG\0", 4));
  ExpectError({"/d ", "no tokens", "1 binary"}, [&] { Open(folder_ / "d"); });
  const std::string bad = WriteText(folder_ / "bad.jsonl", "{\"text\": \"ok\"}\n\n{\"input_ids\": [256]}\n");
  ExpectError({bad + ":3: input_ids[0] is 256"}, [&] { Open(bad); });
  const std::string text = WriteText(folder_ / "text.txt", "ab");
  ExpectError({text + ": ", "255", "vocab_size is 255"}, [&] { Open(text, 255); });
  const std::string line = WriteText(folder_ / "text.jsonl", "{\"input_ids\": [1]}\n{\"text\": \"ab\"}");
  ExpectError({line + ":2: ", "vocab_size is 128"}, [&] { Open(line, 128); });
}

TEST_F(CorpusTest, AFolderThatMayNotBeListedIsAnError) {
  WriteText(folder_ / "d/a.txt", "x");
  fs::create_directory(folder_ / "d/closed");
  fs::permissions(folder_ / "d/closed", fs::perms::none);
  const uid_t user = geteuid();
  if (user == 0) {  // who may list every folder: be somebody else meanwhile
    fs::permissions(folder_.path(), fs::perms(0755));
    ASSERT_EQ(seteuid(65534), 0);
  }
  ExpectError(
      {folder_ / "d", "Permission denied"}, [&] { Open(folder_ / "d"); }, ExitCode::kResource);
  ASSERT_EQ(seteuid(user), 0);
  fs::permissions(folder_ / "d/closed", fs::perms::owner_all);
}

}  // namespace
}  // namespace longspan
