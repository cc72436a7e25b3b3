// Tier: memory beside the device's, host memory or a disk, in slots of fixed sizes. What is moved there and
// back is moved by a background thread, as the copy engine of a GPU would, while the device computes. A rank
// has one, in which each owner of what is offloaded has slots.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "core/background.h"
#include "core/scratch_file.h"
#include "core/tensor.h"
#include "core/work.h"

namespace longspan {

// What a slot holds, and its size.
struct TierSlot {
  std::string_view name;  // what the memory report calls it; of static storage
  int64_t bytes;
  bool starts_as_zero = false;  // it may be read before it is written
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

  // In host memory, or in a file in `directory` unless that is empty. `background`, which does the transfers,
  // and the file calls of `hooks` outlive the tier; null: a dry one, which takes and moves nothing and counts
  // the same. Transfers are reported to `recorder`, unless that is null: those of a dry one to a disk by way
  // of the host's memory if that is not the device's.
  Tier(std::string directory, Background* background, const IoHooks& hooks = {},
       WorkRecorder* recorder = nullptr, bool shares_host_memory = false);
  ~Tier();
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // What so many bytes take in it. Memory that it moves from and to, laid out one after the other in such
  // sizes, is aligned as it wants.
  static int64_t InBlocks(int64_t bytes);

  // Slots of one more owner; gives the number of the first, which the others follow.
  int Add(const std::vector<TierSlot>& slots);
  // Takes what all of them need, once; throws Error(kResource) where it is not to be had.
  void Reserve();
  bool dry() const { return background_ == nullptr; }
  bool on_disk() const { return !directory_.empty(); }

  // A slot's address in memory is a multiple of ScratchFile::kAlignment, and its size at most the slot's. The
  // transfer begins once `after` has happened and the slot's earlier transfers have; the tensor must stay
  // alive, and what is written unchanged, until the returned Event has happened. If one fails so do all later
  // ones of its slot: nothing half-written is ever read. Read only what was written, or starts as zero.
  Event Write(int slot, Tensor from, const Event& after = {});
  Event Read(int slot, Tensor to, const Event& after = {});

  // Waits for a transfer through `backend`; of its waiting, the time that this took.
  void Wait(Backend& backend, const Event& event);
  double wait_seconds() const { return wait_seconds_; }
  // Waits for all that is under way, whether it succeeds or not: no memory that transfers name is in use
  // afterwards. What an owner does before its memory goes.
  void Finish();

  // Of all transfers begun so far, in whole blocks of ScratchFile::kAlignment.
  int64_t bytes_written() const { return bytes_written_; }
  int64_t bytes_read() const { return bytes_read_; }

  // What all slots take, by name.
  std::map<std::string, int64_t> BytesByName() const;

 private:
  struct Slot {
    std::string_view name;
    int64_t offset, bytes;  // bytes: in whole blocks
    bool readable;          // it was written, or starts as zero
    Event last;             // its latest transfer
  };
  Slot& Find(int slot, Tensor tensor);
  Event Start(Slot& slot, WorkKind kind, int64_t bytes, std::function<void()> transfer, const Event& after);
  // Of a dry one: one kind of transfer after the other, but for those that there aren't.
  Event StartDry(Slot& slot, std::initializer_list<WorkKind> kinds, int64_t bytes, const Event& after);
  Event Report(const Slot& slot, WorkKind kind, int64_t bytes, const Event& after, const Event& done);

  const std::string directory_;
  Background* const background_;
  const FileCalls& file_calls_;
  WorkRecorder* const recorder_;
  const bool shares_host_memory_;
  std::vector<Slot> slots_;
  int64_t size_ = 0;                  // of all slots
  std::unique_ptr<Storage> storage_;  // null: dry, or not reserved yet
  int64_t bytes_written_ = 0, bytes_read_ = 0;
  double wait_seconds_ = 0;
};

// Whether a file in this folder is written past the page cache (ScratchFile). Throws Error(kResource) if none
// can be made there.
bool WritesDirectly(const std::string& directory);

}  // namespace longspan
