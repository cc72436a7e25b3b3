#include "core/trace_recorder.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "core/check.h"
#include "core/clock.h"

namespace longspan {

class TraceRecorder::Spans {
 public:
  Spans(int rank, size_t max_spans) : rank_(rank), max_spans_(max_spans) {}

  void Reserve() {
    std::lock_guard lock(mutex_);
    spans_.reserve(max_spans_);
  }

  // Those of a lane come in the order of their ends, and begin no earlier than the one before ended.
  void Add(TraceLane lane, std::string_view name, double begin, double end, double flops, int64_t bytes) {
    std::lock_guard lock(mutex_);
    double& last_end = last_end_[static_cast<size_t>(lane)];
    begin = std::max(begin, last_end);
    end = last_end = std::max(begin, end);
    if (spans_.size() < max_spans_)
      spans_.push_back({rank_, lane, name, begin, end, flops, bytes});
    else
      ++num_left_out_;
  }

  std::vector<TraceSpan> spans() const {
    std::lock_guard lock(mutex_);
    return spans_;
  }
  int64_t num_left_out() const {
    std::lock_guard lock(mutex_);
    return num_left_out_;
  }

 private:
  const int rank_;
  const size_t max_spans_;
  mutable std::mutex mutex_;
  std::vector<TraceSpan> spans_;
  int64_t num_left_out_ = 0;
  std::array<double, kNumTraceLanes> last_end_ = {};
};

TraceRecorder::TraceRecorder(int rank, size_t max_spans) : spans_(std::make_shared<Spans>(rank, max_spans)) {}

TraceRecorder::~TraceRecorder() = default;

void TraceRecorder::Start() {
  spans_->Reserve();
  on_ = true;
}

void TraceRecorder::Took(double begin, double end) {
  began_ = begin;
  ended_ = end;
}

void TraceRecorder::Compute(const Work& work) {
  CHECK(LaneOf(work.kind) == Lane::kCompute);
  if (on_) spans_->Add(TraceLane::kCompute, work.name, began_, ended_, work.flops, work.bytes);
}

// An event that has been handed on says what it was about, so that who waits for it can.
Event TraceRecorder::Transfer(const Work& work, const Event&, const Event& done) {
  CHECK(LaneOf(work.kind) != Lane::kCompute);
  if (on_)
    done.OnDone(
        [spans = spans_, done, kind = work.kind, bytes = work.bytes, posted = Now()](const Failure& failure) {
          if (failure) return;
          spans->Add(TraceLaneOf(kind), Name(kind), std::max(posted, done.began()), Now(), 0, bytes);
        });
  return done.WithWork(static_cast<int64_t>(work.kind) + 1);
}

void TraceRecorder::Wait(const Event& event) {
  if (!on_ || event.Done()) return;
  const double begin = Now();
  event.Wait();
  const std::string_view name =
      event.work() == 0 ? "wait" : WaitName(static_cast<WorkKind>(event.work() - 1));
  spans_->Add(TraceLane::kCompute, name, begin, Now(), 0, 0);
}

std::vector<TraceSpan> TraceRecorder::spans() const { return spans_->spans(); }

int64_t TraceRecorder::num_left_out() const { return spans_->num_left_out(); }

}  // namespace longspan
