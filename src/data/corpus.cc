#include "data/corpus.h"

#include <algorithm>

#include "core/check.h"
#include "core/memory.h"
#include "core/progress_line.h"
#include "data/encode.h"
#include "data/files.h"
#include "data/token_file.h"

namespace longspan {
namespace {

// Documents in memory: ids, one array for all; text of a tokenizer of bytes stays as it is, a byte a token.
class LoadedCorpus final : public Corpus {
 public:
  LoadedCorpus(std::string path, int64_t max_bytes) : path_(std::move(path)), max_bytes_(max_bytes) {}

  void Add(EncodedDocument document);
  void Finish(const DocumentSource& source) {
    names_ = source.names();
    counts_ = source.counts();
  }

  int64_t num_documents() const override { return static_cast<int64_t>(documents_.size()); }
  int64_t num_tokens(int64_t document) const override { return At(document).num_tokens; }

  void ReadTokens(int64_t document, int64_t begin, std::span<int32_t> out) const override {
    const Document& d = At(document);
    CheckRange(d, begin, out.size());
    if (d.bytes != nullptr)
      std::copy_n(d.bytes.get() + begin, out.size(), out.begin());
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
    const std::string& name = names_[static_cast<size_t>(d.name)];
    return d.line == 0 ? name : fmt::format("{}:{}", name, d.line);
  }

  FileCounts file_counts() const override { return counts_; }

 private:
  struct Document {
    int64_t num_tokens = 0;
    std::shared_ptr<const unsigned char> bytes;  // the tokens, or null: ids_ from ids_begin
    int64_t ids_begin = 0;
    int64_t labels_begin = -1;   // in labels_; −1: the tokens themselves
    int64_t name = 0, line = 0;  // line 0: the file is the document
  };

  const Document& At(int64_t document) const {
    CHECK(document >= 0 && document < num_documents());
    return documents_[static_cast<size_t>(document)];
  }
  static void CheckRange(const Document& d, int64_t begin, size_t size) {
    CHECK(begin >= 0 && begin <= d.num_tokens && static_cast<int64_t>(size) <= d.num_tokens - begin);
  }

  const std::string path_;
  const int64_t max_bytes_;  // of memory
  std::vector<Document> documents_;
  std::vector<std::string> names_;
  std::vector<int32_t> ids_, labels_;
  int64_t held_bytes_ = 0;
  FileCounts counts_;
};

void LoadedCorpus::Add(EncodedDocument document) {
  Document d;
  d.name = document.name;
  d.line = document.line;
  if (document.owner != nullptr) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(document.bytes.data());
    d.bytes = std::shared_ptr<const unsigned char>(std::move(document.owner), bytes);
    d.num_tokens = static_cast<int64_t>(document.bytes.size());
    if (!document.is_mapped) held_bytes_ += d.num_tokens;
  } else {
    d.num_tokens = static_cast<int64_t>(document.ids.size());
    d.ids_begin = static_cast<int64_t>(ids_.size());
    ids_.insert(ids_.end(), document.ids.begin(), document.ids.end());
    if (document.labels) {
      d.labels_begin = static_cast<int64_t>(labels_.size());
      labels_.insert(labels_.end(), document.labels->begin(), document.labels->end());
    }
  }
  documents_.push_back(std::move(d));
  held_bytes_ += static_cast<int64_t>((document.ids.size() + (document.labels ? document.ids.size() : 0)) *
                                          sizeof(int32_t) +
                                      sizeof(Document));
  Require(ExitCode::kResource, held_bytes_ <= max_bytes_,
          "{}: the tokens take more than {} MiB, half of the memory that is free; write them to a file with "
          "`longspan tokenize`, and give that as data_path",
          path_, max_bytes_ >> 20);
}

// Corpora one behind the other.
class JoinedCorpus final : public Corpus {
 public:
  JoinedCorpus(std::vector<std::unique_ptr<Corpus>> parts, int64_t num_left_out)
      : parts_(std::move(parts)), num_left_out_(num_left_out) {
    for (const auto& part : parts_)
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part->num_documents());
  }

  int64_t num_documents() const override { return ends_.empty() ? 0 : ends_.back(); }
  int64_t num_tokens(int64_t document) const override {
    const auto [part, place] = Find(document);
    return part->num_tokens(place);
  }
  void ReadTokens(int64_t document, int64_t begin, std::span<int32_t> out) const override {
    const auto [part, place] = Find(document);
    part->ReadTokens(place, begin, out);
  }
  void ReadLabels(int64_t document, int64_t begin, std::span<int32_t> out) const override {
    const auto [part, place] = Find(document);
    part->ReadLabels(place, begin, out);
  }
  std::string DocumentName(int64_t document) const override {
    const auto [part, place] = Find(document);
    return part->DocumentName(place);
  }
  FileCounts file_counts() const override {
    FileCounts sum;
    sum.left_out = num_left_out_;
    for (const auto& part : parts_) sum += part->file_counts();
    return sum;
  }

 private:
  std::pair<const Corpus*, int64_t> Find(int64_t document) const {
    CHECK(document >= 0 && document < num_documents());
    const auto part =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), document) - ends_.begin());
    return {parts_[part].get(), part == 0 ? document : document - ends_[part - 1]};
  }

  std::vector<std::unique_ptr<Corpus>> parts_;
  const int64_t num_left_out_;  // files
  std::vector<int64_t> ends_;   // of the parts, in documents
};

}  // namespace

int64_t Corpus::total_tokens() const {
  int64_t sum = 0;
  for (int64_t i = 0; i < num_documents(); ++i) sum += num_tokens(i);
  return sum;
}

std::unique_ptr<Corpus> OpenCorpus(const std::string& path, const Tokenizer& tokenizer, int64_t vocab_size,
                                   const DataOptions& options) {
  const DataFiles list = ListDataFiles(path, options.data_path_filter);
  ProgressLine progress("reading " + path, kMegabytes, list.total_bytes());
  const int64_t max_bytes = AvailableMemory() / 2;  // what grows is copied
  std::vector<std::unique_ptr<Corpus>> parts;
  int64_t done = 0;
  for (std::span<const DataFile> rest = list.files; !rest.empty();) {
    if (IsTokenFile(rest.front().path, list.is_folder)) {
      Require(ExitCode::kUsage, options.data_document == "file",
              "{} is a token file, whose documents are made already; leave it out or take data_document=file",
              rest.front().path);
      parts.push_back(OpenTokenFile(rest.front().path, tokenizer, vocab_size));
      done += rest.front().bytes;
      rest = rest.subspan(1);
      continue;
    }
    const auto end = std::find_if(rest.begin(), rest.end(), [&](const DataFile& file) {
      return IsTokenFile(file.path, list.is_folder);
    });
    auto part = std::make_unique<LoadedCorpus>(path, max_bytes);
    DocumentSource source(list, rest.first(static_cast<size_t>(end - rest.begin())), options,
                          tokenizer.IsBytes());
    EncodeDocuments(
        source, tokenizer, vocab_size, /*threads=*/0,
        [&](EncodedDocument document) { part->Add(std::move(document)); },
        [&](int64_t bytes) { progress.Update(done + bytes); });
    part->Finish(source);
    done += source.bytes_read();
    rest = rest.subspan(static_cast<size_t>(end - rest.begin()));
    parts.push_back(std::move(part));
  }
  auto corpus = std::make_unique<JoinedCorpus>(std::move(parts), list.num_left_out);
  Require(corpus->num_documents() > 0,
          "{} has no tokens ({} binary files were left out); give a text, JSONL lines with `text` or "
          "`input_ids`, a "
          "token file, or a folder of such files",
          path, corpus->file_counts().binary);
  return corpus;
}

}  // namespace longspan
