#include "core/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "core/memory.h"

namespace longspan {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kCommitStep = int64_t{16} << 20;
constexpr int64_t kSmallestReservation = int64_t{64} << 20;

int64_t RoundUp(int64_t x, int64_t step) { return (x + step - 1) / step * step; }

}  // namespace

int64_t Arena::AllocationBytes(int64_t bytes) { return RoundUp(bytes, kAlignment); }

Arena::Arena(Mode mode, int64_t capacity) : mode_(mode) {
  if (mode == Mode::kMeasure) {
    base_ = reinterpret_cast<char*>(kNowhere);
    reserved_ = limit_ = kNowhere;
    return;
  }
  const int64_t physical = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  int64_t size = RoundUp(std::max(capacity > 0 ? capacity : physical, int64_t{1}), kCommitStep);
  const int64_t smallest = capacity > 0 ? size : std::min(size, kSmallestReservation);
  // Where address space is limited (ulimit -v, many ranks) a smaller reservation often does as well.
  for (; size >= smallest; size = size / 2 / kCommitStep * kCommitStep) {
    void* base = mmap(nullptr, static_cast<size_t>(size), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED) {
      base_ = static_cast<char*>(base);
      reserved_ = limit_ = size;
      return;
    }
  }
  throw Error(
      fmt::format("cannot reserve {} bytes of address space; use fewer ranks, or raise the process's limit "
                  "if it has one (ulimit -v)",
                  smallest),
      ExitCode::kResource);
}

Arena::~Arena() {
  if (mode_ == Mode::kReal && !KeepsMemory()) munmap(base_, static_cast<size_t>(reserved_));
}

Tensor Arena::Allocate(std::string_view name, DType dtype, std::span<const int64_t> shape) {
  const int64_t bytes = AllocationBytes(Tensor(nullptr, dtype, shape).num_bytes());
  Require(ExitCode::kResource, bytes <= reserved_ - used_,
          "a step needs more than the {} bytes of address space this process may reserve ({} more for {})",
          reserved_, bytes, name);
  Require(ExitCode::kResource, bytes <= limit_ - used_,
          "out of device memory: {} needs {} bytes, and of the {} that the rest of the run leaves to a step "
          "{} are in use",
          name, bytes, limit_, used_);
  char* data = base_ + used_;
  used_ += bytes;
  live_.push_back({name, bytes});
  if (used_ > peak_) {
    peak_ = used_;
    peak_live_ = live_;
    if (mode_ == Mode::kReal) Commit(peak_);
  }
  return Tensor(data, dtype, shape);
}

void Arena::Limit(int64_t bytes) {
  CHECK(bytes >= used_);
  limit_ = std::min(bytes, reserved_);
}

void Arena::Commit(int64_t end) {
  if (end <= committed_) return;
  const int64_t target = std::min(reserved_, RoundUp(end, kCommitStep));
  char* from = base_ + committed_;
  const size_t size = static_cast<size_t>(target - committed_);
  Require(ExitCode::kResource, mprotect(from, size, PROT_READ | PROT_WRITE) == 0,
          "out of memory: the system refused to grow the step's memory to {} bytes", target);
  madvise(from, size, MADV_HUGEPAGE);
  committed_ = target;
}

Arena::Scope::~Scope() {
  arena_.used_ = used_;
  arena_.live_.resize(live_);
}

void Arena::ResetPeak() {
  peak_ = used_;
  peak_live_ = live_;
}

const std::map<std::string, int64_t, std::less<>>& Arena::peak_by_name() const {
  peak_by_name_.clear();
  for (const Allocation& a : peak_live_) peak_by_name_[std::string(a.name)] += a.bytes;
  return peak_by_name_;
}

}  // namespace longspan
