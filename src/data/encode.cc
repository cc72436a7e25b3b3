#include "data/encode.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/check.h"
#include "core/machine.h"
#include "data/jsonl.h"

namespace longspan {
namespace {

// Text that is read but not yet handed on; one piece may exceed it alone.
constexpr int64_t kMaxWaitingBytes = int64_t{64} << 20;

class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, int64_t vocab_size) : tokenizer_(tokenizer), vocab_size_(vocab_size) {}

  std::vector<EncodedDocument> Encode(const SourcePiece& piece) const {
    std::vector<EncodedDocument> documents;
    if (piece.first_line == 0)
      AddText(piece, 0, piece.text, piece.owner, &documents);
    else
      AddLines(piece, &documents);
    return documents;
  }

 private:
  static std::string Where(const SourcePiece& piece, int64_t line) {
    return line == 0 ? piece.shown_name : fmt::format("{}:{}", piece.shown_name, line);
  }

  static EncodedDocument Document(const SourcePiece& piece, int64_t line) {
    EncodedDocument document;
    document.name = piece.name;
    document.line = line;
    document.where = Where(piece, line);
    return document;
  }

  void AddText(const SourcePiece& piece, int64_t line, std::string_view text,
               std::shared_ptr<const void> owner, std::vector<EncodedDocument>* documents) const {
    if (text.empty()) return;
    EncodedDocument document = Document(piece, line);
    Require(tokenizer_.vocab_size() <= vocab_size_,
            "{}: text becomes ids from 0 to {}, but the model's vocab_size is {}; give `input_ids`, or a "
            "model with vocab_size of at least {}",
            document.where, tokenizer_.vocab_size() - 1, vocab_size_, tokenizer_.vocab_size());
    if (tokenizer_.IsBytes()) {
      document.bytes = text;
      document.owner = std::move(owner);
      document.is_mapped = line == 0 && piece.is_mapped;
    } else {
      try {
        document.ids = tokenizer_.Encode(text);
      } catch (const Error& e) {
        throw Error(fmt::format("{}: {}", document.where, e.what()), e.code());
      }
      if (document.ids.empty()) return;
      const auto prefix = tokenizer_.document_prefix(), suffix = tokenizer_.document_suffix();
      document.ids.insert(document.ids.begin(), prefix.begin(), prefix.end());
      document.ids.insert(document.ids.end(), suffix.begin(), suffix.end());
    }
    documents->push_back(std::move(document));
  }

  void AddLines(const SourcePiece& piece, std::vector<EncodedDocument>* documents) const {
    std::string_view text = piece.text;
    for (int64_t line_number = piece.first_line; !text.empty(); ++line_number) {
      const size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(end == text.npos ? text.size() : end + 1);
      if (line.find_first_not_of(" \t\r") == line.npos) continue;

      JsonlDocument parsed = ParseJsonlLine(line, vocab_size_, Where(piece, line_number));
      if (parsed.text) {
        const auto owner = std::make_shared<const std::string>(std::move(*parsed.text));
        AddText(piece, line_number, *owner, owner, documents);
      } else if (!parsed.ids.empty()) {
        EncodedDocument document = Document(piece, line_number);
        document.ids = std::move(parsed.ids);
        document.labels = std::move(parsed.labels);
        documents->push_back(std::move(document));
      }
    }
  }

  const Tokenizer& tokenizer_;
  const int64_t vocab_size_;
};

// Pieces that are numbered when they are read, and handed on in order of their numbers.
class Pipeline {
 public:
  struct Result {
    std::vector<EncodedDocument> documents;
    std::exception_ptr error;
    int64_t bytes = 0;       // of the text
    int64_t bytes_read = 0;  // of the source, up to this piece
  };

  Pipeline(DocumentSource& source, const Encoder& encoder, int64_t threads)
      : source_(source), encoder_(encoder) {
    try {
      for (int64_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
    } catch (const std::system_error& e) {
      Stop();
      throw Error(fmt::format("cannot start {} threads to encode text: {}; take fewer", threads, e.what()),
                  ExitCode::kResource);
    }
  }
  ~Pipeline() { Stop(); }  // and the threads end
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // The next result; false at the end.
  bool Take(Result* result) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return results_.contains(taken_) || (ended_ && taken_ == read_); });
    const auto found = results_.find(taken_);
    if (found == results_.end()) return false;
    *result = std::move(found->second);
    results_.erase(found);
    ++taken_;
    waiting_bytes_ -= result->bytes;
    lock.unlock();
    changed_.notify_all();
    return true;
  }

 private:
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
  }

  void Work() {
    SourcePiece piece;
    int64_t number = 0;
    Result result;
    while (Read(&piece, &number, &result)) {
      if (result.error == nullptr) {
        try {
          result.documents = encoder_.Encode(piece);
        } catch (...) {
          result.error = std::current_exception();
        }
      }
      piece = {};
      {
        const std::lock_guard lock(mutex_);
        results_.emplace(number, std::move(result));
      }
      changed_.notify_all();
      result = {};
    }
  }

  // One thread reads at a time. An error of the source has a number like any piece, and is the last.
  bool Read(SourcePiece* piece, int64_t* number, Result* result) {
    const std::lock_guard reading(source_mutex_);
    {
      std::unique_lock lock(mutex_);
      changed_.wait(
          lock, [&] { return stopped_ || ended_ || waiting_bytes_ < kMaxWaitingBytes || taken_ == read_; });
      if (stopped_ || ended_) return false;
    }
    bool has_piece = true;
    try {
      has_piece = source_.Next(piece);
    } catch (...) {
      result->error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    if (!has_piece || result->error != nullptr) {
      ended_ = true;
      changed_.notify_all();
    }
    if (!has_piece) return false;
    *number = read_++;
    result->bytes = static_cast<int64_t>(piece->text.size());
    result->bytes_read = source_.bytes_read();
    waiting_bytes_ += result->bytes;
    return true;
  }

  DocumentSource& source_;
  const Encoder& encoder_;
  std::mutex source_mutex_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::map<int64_t, Result> results_;  // by number
  int64_t read_ = 0, taken_ = 0;       // numbers
  int64_t waiting_bytes_ = 0;
  bool ended_ = false, stopped_ = false;

  std::vector<std::jthread> threads_;  // joined before all of this goes
};

}  // namespace

void EncodeDocuments(DocumentSource& source, const Tokenizer& tokenizer, int64_t vocab_size, int64_t threads,
                     const std::function<void(EncodedDocument)>& sink,
                     const std::function<void(int64_t bytes_read)>& progress) {
  CHECK(threads >= 0);
  if (threads == 0) threads = NumCores();
  const Encoder encoder(tokenizer, vocab_size);
  Pipeline pipeline(source, encoder, threads);
  for (Pipeline::Result result; pipeline.Take(&result);) {
    if (result.error != nullptr) std::rethrow_exception(result.error);
    for (EncodedDocument& document : result.documents) sink(std::move(document));
    progress(result.bytes_read);
  }
}

}  // namespace longspan
