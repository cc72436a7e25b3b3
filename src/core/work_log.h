// WorkLog: the work of one rank in a dry run, in the order in which it was begun.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/work.h"

namespace longspan {

class WorkLog final : public WorkRecorder {
 public:
  enum class Step : uint8_t { kCompute, kTransfer, kWait };
  struct Entry {
    Step step = Step::kCompute;
    Work work;          // but for its ranks, which are groups()[group]
    int group = -1;     // of a transfer between ranks
    int64_t event = 0;  // the work that a transfer begins after, or that is waited for; 0: none
  };

  void Compute(const Work& work) override;
  Event Transfer(const Work& work, const Event& after, const Event& done) override;
  void Wait(const Event& event) override;

  std::span<const Entry> entries() const { return entries_; }  // work n is entries()[n − 1]
  std::span<const std::vector<int>> groups() const { return groups_; }

 private:
  int GroupOf(std::span<const int> ranks);

  std::vector<Entry> entries_;
  std::vector<std::vector<int>> groups_;
  std::map<std::vector<int>, int> group_index_;
};

}  // namespace longspan
