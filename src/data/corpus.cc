#include "data/corpus.h"

#include <algorithm>
#include <deque>
#include <filesystem>

#include "core/check.h"
#include "core/file.h"
#include "data/jsonl.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;

constexpr size_t kSniffBytes = 8192;  // where a NUL byte says that a file is binary
constexpr size_t kMinMappedBytes =
    1 << 20;  // smaller texts are copied: a process may have some 65,000 mappings

// Text that the byte tokenizer reads stays as it is, a byte a token; all else is held as ids, one array for
// all.
class LoadedCorpus final : public Corpus {
 public:
  LoadedCorpus(const Tokenizer& tokenizer, int64_t vocab_size)
      : tokenizer_(tokenizer), vocab_size_(vocab_size) {}

  void AddFile(const std::string& path);
  void AddFolder(const std::string& path);

  int64_t num_documents() const override { return static_cast<int64_t>(documents_.size()); }
  int64_t num_tokens(int64_t document) const override { return At(document).num_tokens; }

  void ReadTokens(int64_t document, int64_t begin, std::span<int32_t> out) const override {
    const Document& d = At(document);
    CheckRange(d, begin, out.size());
    if (d.bytes != nullptr)
      std::copy_n(d.bytes + begin, out.size(), out.begin());
    else
      std::copy_n(ids_.begin() + d.ids_begin + begin, out.size(), out.begin());
  }

  void ReadLabels(int64_t document, int64_t begin, std::span<int32_t> out) const override {
    const Document& d = At(document);
    if (d.labels_begin < 0) return ReadTokens(document, begin, out);
    CheckRange(d, begin, out.size());
    std::copy_n(labels_.begin() + d.labels_begin + begin, out.size(), out.begin());
  }

  std::string DocumentName(int64_t document) const override {
    const Document& d = At(document);
    const std::string& file = files_[static_cast<size_t>(d.file)];
    return d.line == 0 ? file : fmt::format("{}:{}", file, d.line);
  }

  int64_t num_skipped_files() const override { return num_skipped_files_; }

 private:
  struct Document {
    int64_t num_tokens = 0;
    const unsigned char* bytes = nullptr;  // the tokens, or null: ids_ from ids_begin
    int64_t ids_begin = 0;
    int64_t labels_begin = -1;   // in labels_; −1: the tokens themselves
    int64_t file = 0, line = 0;  // line 0: the file is the document
  };

  const Document& At(int64_t document) const {
    CHECK(document >= 0 && document < num_documents());
    return documents_[static_cast<size_t>(document)];
  }
  static void CheckRange(const Document& d, int64_t begin, size_t size) {
    CHECK(begin >= 0 && begin <= d.num_tokens && static_cast<int64_t>(size) <= d.num_tokens - begin);
  }

  void AddJsonLines(std::string_view text);
  void AddText(std::string_view text, int64_t line);
  void AddBytes(std::string_view text, int64_t line);  // `text` stays where it is
  void AddIds(std::span<const int32_t> ids, int64_t line);
  void RequireVocabulary(int64_t line) const;  // the model has all ids that a text may become
  std::string Where(int64_t line) const {
    return line == 0 ? files_.back() : fmt::format("{}:{}", files_.back(), line);
  }

  const Tokenizer& tokenizer_;  // used while files are added
  const int64_t vocab_size_;
  std::vector<Document> documents_;
  std::vector<std::string> files_;
  std::deque<MappedFile> mappings_;  // what `bytes` point into
  std::deque<std::string> texts_;    // likewise
  std::vector<int32_t> ids_, labels_;
  int64_t num_skipped_files_ = 0;
};

void LoadedCorpus::AddIds(std::span<const int32_t> ids, int64_t line) {
  if (ids.empty()) return;
  Document d;
  d.num_tokens = static_cast<int64_t>(ids.size());
  d.ids_begin = static_cast<int64_t>(ids_.size());
  d.file = static_cast<int64_t>(files_.size()) - 1;
  d.line = line;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  documents_.push_back(d);
}

void LoadedCorpus::AddText(std::string_view text, int64_t line) {
  if (tokenizer_.IsBytes()) return AddBytes(texts_.emplace_back(text), line);
  RequireVocabulary(line);
  try {
    std::vector<int32_t> ids = tokenizer_.Encode(text);
    if (ids.empty()) return;
    const auto prefix = tokenizer_.document_prefix(), suffix = tokenizer_.document_suffix();
    ids.insert(ids.begin(), prefix.begin(), prefix.end());
    ids.insert(ids.end(), suffix.begin(), suffix.end());
    AddIds(ids, line);
  } catch (const Error& e) {
    throw Error(fmt::format("{}: {}", Where(line), e.what()), e.code());
  }
}

void LoadedCorpus::AddBytes(std::string_view text, int64_t line) {
  if (text.empty()) return;
  RequireVocabulary(line);
  Document d;
  d.num_tokens = static_cast<int64_t>(text.size());
  d.bytes = reinterpret_cast<const unsigned char*>(text.data());
  d.file = static_cast<int64_t>(files_.size()) - 1;
  d.line = line;
  documents_.push_back(d);
}

void LoadedCorpus::RequireVocabulary(int64_t line) const {
  Require(tokenizer_.vocab_size() <= vocab_size_,
          "{}: text becomes ids from 0 to {}, but the model's vocab_size is {}; give `input_ids`, or a "
          "model with vocab_size of at least {}",
          Where(line), tokenizer_.vocab_size() - 1, vocab_size_, tokenizer_.vocab_size());
}

void LoadedCorpus::AddJsonLines(std::string_view text) {
  for (int64_t line_number = 1; !text.empty(); ++line_number) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.find_first_not_of(" \t\r") == line.npos) continue;

    const JsonlDocument document = ParseJsonlLine(line, vocab_size_, Where(line_number));
    if (document.text) {
      AddText(*document.text, line_number);
      continue;
    }
    AddIds(document.ids, line_number);
    if (document.ids.empty() || !document.labels) continue;
    documents_.back().labels_begin = static_cast<int64_t>(labels_.size());
    labels_.insert(labels_.end(), document.labels->begin(), document.labels->end());
  }
}

void LoadedCorpus::AddFile(const std::string& path) {
  files_.push_back(path);
  const std::string extension = fs::path(path).extension();
  Require(extension != ".gz" && extension != ".zst",
          "{}: compressed files cannot be read; decompress it first", path);
  MappedFile file(path);
  if (extension == ".jsonl") {
    AddJsonLines(file.text());
  } else if (tokenizer_.IsBytes() && file.text().size() >= kMinMappedBytes) {
    mappings_.push_back(std::move(file));
    AddBytes(mappings_.back().text(), 0);
  } else {
    AddText(file.text(), 0);
  }
}

bool IsBinary(const std::string& path) {
  const MappedFile file(path);
  return file.text().substr(0, kSniffBytes).find('\0') != std::string_view::npos;
}

bool IsHidden(const fs::path& path) { return path.filename().native().starts_with('.'); }

void LoadedCorpus::AddFolder(const std::string& path) {
  std::vector<std::string> files;
  try {
    for (fs::recursive_directory_iterator it(path), end; it != end; ++it) {
      if (IsHidden(it->path())) {
        it.disable_recursion_pending();
        continue;
      }
      std::error_code unknown;  // a link to nowhere, or in a circle: reading it says so
      const fs::file_status status = it->status(unknown);
      if (fs::is_regular_file(status) || unknown || !fs::exists(status)) files.push_back(it->path());
    }
  } catch (const fs::filesystem_error& e) {
    throw Error(fmt::format("cannot list all folders below {}: {}; check their permissions", path,
                            e.code().message()),
                ExitCode::kResource);
  }
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) {
    if (!file.ends_with(".jsonl") && !file.ends_with(".gz") && !file.ends_with(".zst") && IsBinary(file))
      ++num_skipped_files_;
    else
      AddFile(file);
  }
}

}  // namespace

int64_t Corpus::total_tokens() const {
  int64_t sum = 0;
  for (int64_t i = 0; i < num_documents(); ++i) sum += num_tokens(i);
  return sum;
}

std::unique_ptr<Corpus> OpenCorpus(const std::string& path, const Tokenizer& tokenizer, int64_t vocab_size) {
  auto corpus = std::make_unique<LoadedCorpus>(tokenizer, vocab_size);
  std::error_code unreadable;  // said better by opening it
  if (fs::is_directory(path, unreadable))
    corpus->AddFolder(path);
  else
    corpus->AddFile(path);
  Require(corpus->num_documents() > 0,
          "{} has no tokens ({} binary files were left out); give a text, JSONL lines with "
          "`text` or `input_ids`, or a folder of such files",
          path, corpus->num_skipped_files());
  return corpus;
}

}  // namespace longspan
