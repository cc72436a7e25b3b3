// Retrieval tasks: questions about something that stands in a long text.
//
// To add one: a class in one of the tasks_*.cc and a row in TaskTable(). Keys, help and reports follow.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"

namespace longspan {

// Random numbers one after the other, a function of (seed, stream).
class Draws {
 public:
  Draws(uint64_t seed, std::string_view stream) : random_(seed, stream) {}
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(random_.Below(static_cast<uint64_t>(bound), next_++));
  }
  // `count` different numbers below `bound`, in random order; bound ≥ count.
  std::vector<int64_t> Distinct(int64_t count, int64_t bound);

 private:
  CounterRandom random_;
  uint64_t next_ = 0;
};

struct Question {
  std::string prompt;                // the text and what is asked about it
  std::vector<std::string> answers;  // what may follow the prompt: the right one first, then wrong ones
};

class Task {
 public:
  virtual ~Task() = default;

  // The text is as long as its units are many: sentences, pairs, verses.
  virtual int64_t min_units() const = 0;
  virtual int64_t max_units() const = 0;
  // False: the answer is spread over the whole text.
  virtual bool has_depth() const { return true; }
  // A question about a text of so many units, with the answer behind `depth` (0 … 1) of them and at most
  // `choices` answers. A function of the arguments alone.
  virtual Question Ask(int64_t units, double depth, int64_t choices, Draws& draws) const = 0;
};

struct TaskRow {
  std::string_view name, summary;
  bool takes_path;  // task_path is its file; else it has none
  std::unique_ptr<Task> (*make)(const std::string& path);
};
std::span<const TaskRow> TaskTable();  // needle, variable_tracking, key_value, bible
// Throws Error(kUsage) naming the nearest name.
const TaskRow& FindTask(std::string_view name);

// One file each; those of a path throw Error naming file and line.
std::unique_ptr<Task> MakeNeedle(const std::string& path);
std::unique_ptr<Task> MakeVariableTracking(const std::string& path);
std::unique_ptr<Task> MakeKeyValue(const std::string& path);
std::unique_ptr<Task> MakeBible(const std::string& path);

}  // namespace longspan
