#include "train/tier.h"

#include <cstring>
#include <utility>

#include "core/arena.h"
#include "core/check.h"

namespace longspan {
namespace {

class HostStorage final : public Tier::Storage {
 public:
  explicit HostStorage(int64_t bytes)
      : arena_(Arena::Mode::kReal, bytes), memory_(arena_.Allocate("host memory", DType::kByte, {bytes})) {}
  void Write(int64_t offset, const void* data, int64_t bytes) override {
    std::memcpy(At(offset), data, static_cast<size_t>(bytes));
  }
  void Read(int64_t offset, void* data, int64_t bytes) override {
    std::memcpy(data, At(offset), static_cast<size_t>(bytes));
  }

 private:
  std::byte* At(int64_t offset) const { return static_cast<std::byte*>(memory_.raw()) + offset; }

  Arena arena_;
  const Tensor memory_;
};

class DiskStorage final : public Tier::Storage {
 public:
  DiskStorage(const std::string& directory, int64_t bytes, const FileCalls& calls)
      : file_(directory, bytes, calls) {}
  void Write(int64_t offset, const void* data, int64_t bytes) override { file_.Write(offset, data, bytes); }
  void Read(int64_t offset, void* data, int64_t bytes) override { file_.Read(offset, data, bytes); }

 private:
  ScratchFile file_;
};

}  // namespace

Tier::Tier(std::string directory, Background* background, const IoHooks& hooks, WorkRecorder* recorder,
           bool shares_host_memory)
    : directory_(std::move(directory)),
      background_(background),
      file_calls_(*hooks.file_calls),
      recorder_(recorder),
      shares_host_memory_(shares_host_memory) {}

Tier::~Tier() { Finish(); }

int64_t Tier::InBlocks(int64_t bytes) {
  constexpr int64_t kBlock = ScratchFile::kAlignment;
  return (bytes + kBlock - 1) / kBlock * kBlock;
}

int Tier::Add(const std::vector<TierSlot>& slots) {
  CHECK(storage_ == nullptr);
  const int first = static_cast<int>(slots_.size());
  for (const TierSlot& slot : slots) {
    const int64_t bytes = InBlocks(slot.bytes);
    slots_.push_back(
        {.name = slot.name, .offset = size_, .bytes = bytes, .readable = slot.starts_as_zero, .last = {}});
    size_ += bytes;
  }
  return first;
}

// Both kinds of storage begin as zeros.
void Tier::Reserve() {
  CHECK(storage_ == nullptr);
  if (dry() || size_ == 0) return;
  if (directory_.empty())
    storage_ = std::make_unique<HostStorage>(size_);
  else
    storage_ = std::make_unique<DiskStorage>(directory_, size_, file_calls_);
}

void Tier::Wait(Backend& backend, const Event& event) {
  const double before = backend.wait_seconds();
  backend.Wait(event);
  wait_seconds_ += backend.wait_seconds() - before;
}

void Tier::Finish() {
  for (const Slot& slot : slots_) {
    try {
      slot.last.Wait();
    } catch (const std::exception&) {
      // Whoever asked for the transfer has its event.
    }
  }
}

Tier::Slot& Tier::Find(int slot, Tensor tensor) {
  CHECK(0 <= slot && static_cast<size_t>(slot) < slots_.size());
  Slot& found = slots_[static_cast<size_t>(slot)];
  CHECK(tensor.num_bytes() <= found.bytes);
  CHECK(reinterpret_cast<uintptr_t>(tensor.raw()) % ScratchFile::kAlignment == 0);
  return found;
}

Event Tier::Write(int slot, Tensor from, const Event& after) {
  Slot& to = Find(slot, from);
  const int64_t bytes = from.num_bytes();
  to.readable = true;
  bytes_written_ += InBlocks(bytes);
  if (dry()) {
    return StartDry(to, {WorkKind::kToHost, WorkKind::kToDisk}, bytes, after);
  }
  return Start(
      to, on_disk() ? WorkKind::kToDisk : WorkKind::kToHost, bytes,
      [storage = storage_.get(), offset = to.offset, from] {
        storage->Write(offset, from.raw(), from.num_bytes());
      },
      after);
}

Event Tier::Read(int slot, Tensor to, const Event& after) {
  Slot& from = Find(slot, to);
  CHECK(from.readable);
  const int64_t bytes = to.num_bytes();
  bytes_read_ += InBlocks(bytes);
  if (dry()) {
    return StartDry(from, {WorkKind::kFromDisk, WorkKind::kFromHost}, bytes, after);
  }
  return Start(
      from, on_disk() ? WorkKind::kFromDisk : WorkKind::kFromHost, bytes,
      [storage = storage_.get(), offset = from.offset, to] {
        storage->Read(offset, to.raw(), to.num_bytes());
      },
      after);
}

Event Tier::Start(Slot& slot, WorkKind kind, int64_t bytes, std::function<void()> transfer,
                  const Event& after) {
  CHECK(storage_ != nullptr);  // Reserve was called
  const Event moved = background_->Post(std::move(transfer), Both(after, slot.last));
  return slot.last = Report(slot, kind, bytes, after, moved);
}

Event Tier::StartDry(Slot& slot, std::initializer_list<WorkKind> kinds, int64_t bytes, const Event& after) {
  Event last = Both(after, slot.last);
  for (const WorkKind kind : kinds) {
    if (LaneOf(kind) == Lane::kDisk ? !on_disk() : on_disk() && shares_host_memory_) continue;
    last = Report(slot, kind, bytes, last, {});
  }
  return slot.last = last;
}

Event Tier::Report(const Slot& slot, WorkKind kind, int64_t bytes, const Event& after, const Event& done) {
  if (recorder_ == nullptr) return done;
  Work work;
  work.kind = kind;
  work.name = slot.name;
  work.bytes = bytes;
  return recorder_->Transfer(work, after, done);
}

std::map<std::string, int64_t> Tier::BytesByName() const {
  std::map<std::string, int64_t> bytes;
  for (const Slot& slot : slots_) bytes[std::string(slot.name)] += slot.bytes;
  return bytes;
}

bool WritesDirectly(const std::string& directory) {
  return ScratchFile(directory, ScratchFile::kAlignment).direct();
}

}  // namespace longspan
