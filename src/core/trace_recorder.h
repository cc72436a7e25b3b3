// TraceRecorder: what a rank really does and when, as spans of a trace (core/trace.h).
//
// Its compute lane has operations, and waits by what they were for. A transfer's span begins when its work
// began (Event::began; where nobody says so, when it was begun here), or later, when the one before it on its
// lane ended; it ends when it has happened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/trace.h"
#include "core/work.h"

namespace longspan {

// Used by the thread of its rank, but for ends of transfers, which come from any.
class TraceRecorder final : public WorkRecorder {
 public:
  // Keeps the first `max_spans`, and counts the others.
  TraceRecorder(int rank, size_t max_spans);
  ~TraceRecorder() override;

  // What is computed, begun or waited for in between is recorded, nothing else.
  void Start();
  void Stop() { on_ = false; }
  bool on() const { return on_; }

  // When the operation that Compute reports next began and ended, by Now() (core/clock.h).
  void Took(double begin, double end);
  void Compute(const Work& work) override;
  Event Transfer(const Work& work, const Event& after, const Event& done) override;
  void Wait(const Event& event) override;

  // Of what has ended so far; begin and end by Now().
  std::vector<TraceSpan> spans() const;
  int64_t num_left_out() const;

 private:
  class Spans;

  const std::shared_ptr<Spans> spans_;  // also of transfers that are under way
  bool on_ = false;
  double began_ = 0, ended_ = 0;  // what Took was told
};

}  // namespace longspan
