#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/target.h"
#include "data/corpus.h"
#include "data/decompress.h"
#include "data/jsonl.h"
#include "data/token_file.h"
#include "data/token_file_format.h"
#include "data/tokenizer.h"
#include "data/utf8.h"
#include "eval/task.h"
#include "fuzz/memory_file.h"
#include "fuzz/readers.h"

namespace longspan::fuzz {

void ReadJsonLine(std::string_view input) {
  constexpr int64_t kVocabulary = 1000;
  const JsonlDocument document = ParseJsonlLine(input, kVocabulary, "line");
  CHECK(!document.text || document.ids.empty());
  for (const int32_t id : document.ids) CHECK(id >= 0 && id < kVocabulary);
  CHECK(!document.labels || document.labels->size() == document.ids.size());
}

namespace {

// The input with the checksums that its bytes should have, as nothing behind a wrong one would ever be
// reached.
std::string WithChecks(std::string_view input) {
  using namespace token_file;
  std::string file(input);
  if (file.size() < sizeof(Start) + sizeof(Footer)) return file;
  const size_t end = file.size() - sizeof(Footer);
  const auto check = [&](uint64_t from, uint64_t to) {
    return Crc32(0, std::as_bytes(std::span(file)).subspan(from, to - from));
  };
  Footer footer;
  std::memcpy(&footer, file.data() + end, sizeof(footer));
  const uint64_t ids_bytes = Padded(footer.num_tokens * footer.id_bytes);
  const uint64_t mask_bytes = footer.has_mask != 0 ? Padded((footer.num_tokens + 7) / 8) : 0;
  if (ids_bytes <= end && mask_bytes <= end && sizeof(Start) + ids_bytes + mask_bytes <= end) {
    const uint64_t index = sizeof(Start) + ids_bytes + mask_bytes;
    uint64_t place = index;
    for (uint64_t block = sizeof(Start); block < index && place + sizeof(uint32_t) <= end;
         block += kBlockBytes) {
      const uint32_t of_block = check(block, std::min(index, block + kBlockBytes));
      std::memcpy(file.data() + place, &of_block, sizeof(of_block));
      place += sizeof(of_block);
    }
    footer.index_check = check(index, end);
  }
  footer.footer_check = FooterCheck(footer);
  std::memcpy(file.data() + end, &footer, sizeof(footer));
  return file;
}

// Every document of a token file.
void ReadAllOf(std::string_view input) {
  constexpr int64_t kVocabulary = 100000;
  const std::unique_ptr<Corpus> corpus = OpenTokenFile(FileOf(input), *MakeByteTokenizer(), kVocabulary);
  int64_t num_tokens = 0;
  for (int64_t document = 0; document < corpus->num_documents(); ++document) {
    CHECK(corpus->num_tokens(document) > 0 && !corpus->DocumentName(document).empty());
    num_tokens += corpus->num_tokens(document);
    CHECK(num_tokens <= static_cast<int64_t>(input.size()));
    std::vector<int32_t> ids(static_cast<size_t>(corpus->num_tokens(document))), labels(ids.size());
    corpus->ReadTokens(document, 0, ids);
    corpus->ReadLabels(document, 0, labels);
    for (size_t i = 0; i < ids.size(); ++i) {
      CHECK(ids[i] >= 0 && ids[i] < kVocabulary);
      CHECK(labels[i] == ids[i] || labels[i] == kIgnoreTarget);
    }
  }
  CHECK(num_tokens == corpus->total_tokens());
}

}  // namespace

void ReadTokenFile(std::string_view input) {
  try {
    ReadAllOf(WithChecks(input));
  } catch (const Error&) {  // for another reason than a checksum
  }
  ReadAllOf(input);
}

namespace {

// The same text whether it is read at once or in pieces.
void Decompress(const std::string& path) {
  constexpr int64_t kMostBytes = 1 << 22;
  const std::string whole = ReadAll(*OpenCompressed(path), path, kMostBytes);
  const std::unique_ptr<Decompressor> decompressor = OpenCompressed(path);
  std::string text, piece(1009, '\0');
  for (size_t n = piece.size(); n == piece.size();) {
    n = decompressor->Read(piece);
    text.append(piece, 0, n);
  }
  CHECK(text == whole);
}

void ReadEveryDocument(const Corpus& corpus, int64_t vocab_size) {
  CHECK(corpus.num_documents() > 0);
  for (int64_t document = 0; document < corpus.num_documents(); ++document) {
    std::vector<int32_t> ids(static_cast<size_t>(corpus.num_tokens(document))), labels(ids.size());
    corpus.ReadTokens(document, 0, ids);
    corpus.ReadLabels(document, 0, labels);
    for (const int32_t id : ids) CHECK(id >= 0 && id < vocab_size);
    CHECK(!ids.empty() && !corpus.DocumentName(document).empty());
  }
}

// A question of each kind about the whole text and about the least of it.
void AskEverything(const Task& task) {
  for (const int64_t units : {task.min_units(), task.max_units()}) {
    Draws draws(1, "fuzz");
    const Question question = task.Ask(units, 0.5, 4, draws);
    CHECK(!question.prompt.empty() && !question.answers.empty());
  }
}

}  // namespace

void ReadGzip(std::string_view input) {
  static const MemoryFolder folder({"text.gz"});
  Decompress(folder.With(input) + "/text.gz");
}

void ReadZstd(std::string_view input) {
  static const MemoryFolder folder({"text.zst"});
  Decompress(folder.With(input) + "/text.zst");
}

void ReadDocuments(std::string_view input) {
  constexpr int64_t kVocabulary = 256;
  static const MemoryFolder folder({"a", "b.md"}), lines({"lines.jsonl"});
  const std::unique_ptr<Tokenizer> bytes = MakeByteTokenizer();
  std::string refused;
  int num_read = 0;
  const auto read = [&](const std::string& path, const DataOptions& options) {
    try {
      ReadEveryDocument(*OpenCorpus(path, *bytes, kVocabulary, options), kVocabulary);
      ++num_read;
    } catch (const Error& error) {
      refused = error.what();
    }
  };
  DataOptions repository, headed;
  repository.data_document = "repository";
  repository.data_invalid_utf8 = "replace";
  headed.data_file_header = "{path}";
  headed.data_invalid_utf8 = "skip";
  read(folder.With(input), repository);
  read(folder.With(input), headed);
  read(lines.With(input) + "/lines.jsonl", {});
  Require(num_read > 0, "{}", refused);
}

void ReadKeyValues(std::string_view input) { AskEverything(*MakeKeyValue(FileOf(input))); }

void ReadVerses(std::string_view input) { AskEverything(*MakeBible(FileOf(input))); }

}  // namespace longspan::fuzz
