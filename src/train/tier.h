// Tier: memory beside the device's, host memory or a disk, in slots of fixed sizes. What is moved there and
// back is moved by a background thread, as the copy engine of a GPU would, while the device computes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/background.h"
#include "core/scratch_file.h"
#include "core/tensor.h"
#include "core/work.h"

namespace longspan {

// What a slot holds, and its size; `name` is a string literal.
struct TierSlot {
  std::string_view name;  // what the memory report calls it
  int64_t bytes;
};

// For tests: what the background thread does before each transfer, and what stands for the system's calls.
struct OffloadHooks {
  std::function<void()> before_each;
  const FileCalls* file_calls = &FileCalls::System();
};

class Tier {
 public:
  // Where slots lie: bytes at offsets that are multiples of ScratchFile::kAlignment. Used by one thread at a
  // time.
  class Storage {
   public:
    virtual ~Storage() = default;
    virtual void Write(int64_t offset, const void* data, int64_t bytes) = 0;
    virtual void Read(int64_t offset, void* data, int64_t bytes) = 0;
  };

  // In host memory, or in a file in `directory` unless that is empty. Both are taken here; throws
  // Error(kResource) where they are not to be had. `background`, which does the transfers, outlives the tier;
  // null: a dry one, which takes and moves nothing and counts the same. Transfers are reported to `recorder`,
  // unless that is null: those of a dry one to a disk by way of the host's memory if that is not the
  // device's.
  Tier(const std::vector<TierSlot>& slots, const std::string& directory, Background* background,
       const OffloadHooks& hooks = {}, WorkRecorder* recorder = nullptr, bool shares_host_memory = false);
  // Waits for what is under way: no memory that transfers name is in use afterwards.
  ~Tier();
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // A slot's address in memory is a multiple of ScratchFile::kAlignment, and its size at most the slot's. The
  // transfer begins once `after` has happened and the slot's earlier transfers have; the tensor must stay
  // alive, and what is written unchanged, until the returned Event has happened. If one fails so do all later
  // ones of its slot: nothing half-written is ever read. Read only what was written.
  Event Write(int slot, Tensor from, const Event& after = {});
  Event Read(int slot, Tensor to, const Event& after = {});

  // Of all transfers begun so far, in whole blocks of ScratchFile::kAlignment.
  int64_t bytes_written() const { return bytes_written_; }
  int64_t bytes_read() const { return bytes_read_; }

  // What all slots take, by name.
  std::map<std::string, int64_t> BytesByName() const;

 private:
  struct Slot {
    std::string_view name;
    int64_t offset, bytes;  // bytes: in whole blocks
    bool written = false;
    Event last;  // its latest transfer
  };
  Slot& Find(int slot, Tensor tensor);
  Event Start(Slot& slot, WorkKind kind, int64_t bytes, std::function<void()> transfer, const Event& after);
  // Of a dry one: one kind of transfer after the other, but for those that there aren't.
  Event StartDry(Slot& slot, std::initializer_list<WorkKind> kinds, int64_t bytes, const Event& after);
  Event Report(const Slot& slot, WorkKind kind, int64_t bytes, const Event& after, const Event& done);

  Background* const background_;
  WorkRecorder* const recorder_;
  const bool on_disk_, shares_host_memory_;
  std::vector<Slot> slots_;
  std::unique_ptr<Storage> storage_;  // null: dry
  int64_t bytes_written_ = 0, bytes_read_ = 0;
};

// Whether a file in this folder is written past the page cache (ScratchFile). Throws Error(kResource) if none
// can be made there.
bool WritesDirectly(const std::string& directory);

}  // namespace longspan
