#include "data/document_source.h"

#include <algorithm>

#include "core/check.h"
#include "core/file.h"
#include "core/memory.h"
#include "data/utf8.h"

namespace longspan {
namespace {

constexpr size_t kSniffBytes = 8192;  // where a NUL byte says that a file is binary
// Smaller files are read rather than mapped: a process may have some 65,000 mappings.
constexpr int64_t kMinMappedBytes = 1 << 20;
constexpr size_t kLinesBytes = 256 << 10;  // of a piece of JSONL: enough to be worth a hand-over

bool LooksBinary(std::string_view text) {
  return text.substr(0, kSniffBytes).find('\0') != std::string_view::npos;
}

bool IsJsonLines(const DataFile& file) { return WithoutCompression(file.path).ends_with(".jsonl"); }

// Owner and text of a string.
std::shared_ptr<const std::string> Own(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

// The first-level folder of a path, with its slash; empty for a file that lies in none.
std::string_view RepositoryOf(std::string_view relative_path) {
  return relative_path.substr(0, relative_path.find('/') + 1);
}

// Valid UTF-8 with U+FFFD for each maximal part that is not.
std::string Mended(std::string_view text) {
  std::string mended;
  mended.reserve(text.size() + 16);
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    mended += text.substr(0, valid);
    text.remove_prefix(valid);
    if (text.empty()) break;
    mended += kReplacementCharacter;
    text.remove_prefix(ReadUtf8Prefix(text).size);
  }
  return mended;
}

}  // namespace

FileCounts& FileCounts::operator+=(const FileCounts& other) {
  files += other.files;
  binary += other.binary;
  left_out += other.left_out;
  not_utf8 += other.not_utf8;
  mended += other.mended;
  text_bytes += other.text_bytes;
  return *this;
}

// A JSONL file, some lines at a time.
class DocumentSource::Lines {
 public:
  Lines(const DataFile& file, int64_t max_line_bytes) : file_(file), max_line_bytes_(max_line_bytes) {
    if (IsCompressed(file.path)) {
      decompressor_ = OpenCompressed(file.path);
    } else {
      mapped_ = std::make_shared<const MappedFile>(file.path);
      rest_ = mapped_->text();
    }
  }

  // Whole lines, with where the first of them is; false at the end of the file.
  bool Next(SourcePiece* piece) {
    if (decompressor_ != nullptr ? !Decompress(piece) : !Cut(piece)) return false;
    piece->first_line = next_line_;
    next_line_ += std::count(piece->text.begin(), piece->text.end(), '\n');
    return true;
  }

  int64_t bytes_read() const {
    return decompressor_ != nullptr ? decompressor_->consumed()
                                    : static_cast<int64_t>(mapped_->text().size() - rest_.size());
  }

 private:
  bool Cut(SourcePiece* piece) {
    if (rest_.empty()) return false;
    const size_t end = rest_.find('\n', std::min(kLinesBytes, rest_.size()) - 1);
    piece->text = rest_.substr(0, end == rest_.npos ? end : end + 1);
    piece->owner = mapped_;
    rest_.remove_prefix(piece->text.size());
    return true;
  }

  bool Decompress(SourcePiece* piece) {
    std::string text = std::move(carry_);
    carry_.clear();
    for (bool at_end = false;;) {
      const size_t size = text.size(), wanted = std::max(kLinesBytes, size);
      text.resize(size + wanted);
      const size_t n = decompressor_->Read(std::span(text).subspan(size));
      text.resize(size + n);
      at_end = n < wanted;
      if (at_end && text.empty()) return false;
      const size_t end = text.rfind('\n');
      if (!at_end && end == text.npos) {
        Require(ExitCode::kResource, static_cast<int64_t>(text.size()) <= max_line_bytes_,
                "{}:{}: the line has more than {} MiB, a quarter of the memory that is free; split it into "
                "smaller documents",
                file_.path, next_line_, max_line_bytes_ >> 20);
        continue;
      }
      if (!at_end) {
        carry_ = text.substr(end + 1);
        text.resize(end + 1);
      }
      const auto owner = Own(std::move(text));
      piece->text = *owner;
      piece->owner = owner;
      return true;
    }
  }

  const DataFile& file_;
  const int64_t max_line_bytes_;
  std::unique_ptr<Decompressor> decompressor_;  // null: not compressed
  std::shared_ptr<const MappedFile> mapped_;
  std::string_view rest_;
  std::string carry_;  // the beginning of a line
  int64_t next_line_ = 1;
};

DocumentSource::DocumentSource(const DataFiles& list, std::span<const DataFile> files,
                               const DataOptions& options, bool takes_any_bytes)
    : is_folder_(list.is_folder),
      repositories_(list.is_folder && options.data_document == "repository"),
      root_(list.root),
      header_(list.is_folder ? options.data_file_header : ""),
      invalid_utf8_(options.data_invalid_utf8),
      takes_any_bytes_(takes_any_bytes),
      max_text_bytes_(AvailableMemory() / 4),
      rest_(files) {}

DocumentSource::~DocumentSource() = default;

int64_t DocumentSource::bytes_read() const {
  return bytes_done_ + (lines_ == nullptr ? 0 : lines_->bytes_read());
}

void DocumentSource::Name(std::string name, SourcePiece* piece) {
  piece->name = static_cast<int64_t>(names_.size());
  piece->shown_name = name;
  names_.push_back(std::move(name));
}

bool DocumentSource::Next(SourcePiece* piece) {
  *piece = {};
  while (true) {
    if (lines_ != nullptr) {
      if (lines_->Next(piece)) {
        piece->name = static_cast<int64_t>(names_.size()) - 1;
        piece->shown_name = names_.back();
        counts_.text_bytes += static_cast<int64_t>(piece->text.size());
        return true;
      }
      bytes_done_ += lines_->bytes_read();
      lines_.reset();
    }
    if (rest_.empty()) return false;
    if (repositories_ && !RepositoryOf(rest_.front().relative_path).empty()) {
      if (NextRepository(piece)) return true;
      continue;
    }
    const DataFile& file = rest_.front();
    rest_ = rest_.subspan(1);
    if (!repositories_ && IsJsonLines(file)) {
      ++counts_.files;
      Name(file.path, piece);
      lines_ = std::make_unique<Lines>(file, max_text_bytes_);
      continue;
    }
    Text text;
    const bool is_taken = ReadText(file, &text);
    bytes_done_ += file.bytes;
    if (!is_taken) continue;
    if (!header_.empty()) {
      const auto owner = Own(header_.For(file.relative_path) + std::string(text.text));
      text = {*owner, owner};
    }
    Name(file.path, piece);
    piece->text = text.text;
    piece->owner = std::move(text.owner);
    piece->is_mapped = text.is_mapped;
    return true;
  }
}

// The files of a folder one behind the other; false if none of them is taken.
bool DocumentSource::NextRepository(SourcePiece* piece) {
  const std::string repository(RepositoryOf(rest_.front().relative_path));
  std::string whole;
  bool is_any = false;
  for (; !rest_.empty() && RepositoryOf(rest_.front().relative_path) == repository;
       rest_ = rest_.subspan(1)) {
    const DataFile& file = rest_.front();
    Text text;
    const bool is_taken = ReadText(file, &text);
    bytes_done_ += file.bytes;
    if (!is_taken) continue;
    if (!whole.empty() && !whole.ends_with('\n')) whole += '\n';
    whole += header_.For(file.relative_path);
    whole += text.text;
    is_any = true;
    Require(
        ExitCode::kResource, static_cast<int64_t>(whole.size()) <= max_text_bytes_,
        "{}/{}: the files of this repository have more than {} MiB, a quarter of the memory that is free; "
        "leave some out (data_path_filter), or take data_document=file",
        root_, repository, max_text_bytes_ >> 20);
  }
  if (!is_any) return false;
  Name(root_ + (root_.ends_with('/') ? "" : "/") + repository, piece);
  const auto owner = Own(std::move(whole));
  piece->text = *owner;
  piece->owner = owner;
  return true;
}

// False if the file is left out.
bool DocumentSource::ReadText(const DataFile& file, Text* text) {
  if (IsCompressed(file.path)) {
    const std::unique_ptr<Decompressor> decompressor = OpenCompressed(file.path);
    std::string content(kSniffBytes, '\0');
    content.resize(decompressor->Read(content));
    if (is_folder_ && LooksBinary(content)) {
      ++counts_.binary;
      return false;
    }
    content += ReadAll(*decompressor, file.path, max_text_bytes_);
    const auto owner = Own(std::move(content));
    *text = {*owner, owner};
  } else if (file.bytes >= kMinMappedBytes) {
    const auto mapped = std::make_shared<const MappedFile>(file.path);
    *text = {mapped->text(), mapped, true};
  } else {
    const auto owner = Own(ReadTextFile(file.path));
    *text = {*owner, owner};
  }
  if (is_folder_ && LooksBinary(text->text)) {
    ++counts_.binary;
    return false;
  }
  const auto bytes = static_cast<int64_t>(text->text.size());
  if (!MakeUtf8(file, text)) return false;
  ++counts_.files;
  counts_.text_bytes += bytes;
  return true;
}

bool DocumentSource::MakeUtf8(const DataFile& file, Text* text) {
  if (takes_any_bytes_ && invalid_utf8_ == "error") return true;
  const size_t valid = ValidUtf8Prefix(text->text);
  if (valid == text->text.size()) return true;
  if (invalid_utf8_ == "skip") {
    ++counts_.not_utf8;
    return false;
  }
  Require(
      invalid_utf8_ == "replace",
      "{}: not UTF-8 at byte {} (0x{:02X}); convert the file to UTF-8, or set data_invalid_utf8=replace (by "
      "U+FFFD) or skip (the file)",
      file.path, valid, static_cast<unsigned char>(text->text[valid]));
  ++counts_.mended;
  const auto owner = Own(Mended(text->text));
  *text = {*owner, owner};
  return true;
}

}  // namespace longspan
