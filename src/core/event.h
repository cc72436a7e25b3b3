// Event: something asynchronous that will have happened (a message, a copy, a disk write).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace longspan {

// Throws the error that made an event fail, a new one at each call, so that no two threads share an
// exception. Empty: it didn't fail.
using Failure = std::function<void()>;

// A cheap handle; copies refer to the same happening. A default-made Event has already happened.
class Event {
 public:
  Event() = default;
  bool Done() const;  // never blocks; true also after a failure
  // Blocks until it has happened: spins for at most 50 µs, then sleeps. Throws what made it fail.
  // Code that computes waits through Backend::Wait, which also accounts for the time.
  void Wait() const;
  // Calls `callback` once it has happened or failed: at once if that is so already, else in the thread that
  // makes it happen. So a callback is short, takes no lock that may be held there, and doesn't throw.
  void OnDone(std::function<void(const Failure&)> callback) const;

  // When what it is about began, by Now() (core/clock.h), where who did it has said so; else 0. Asked only
  // once it has happened.
  double began() const;

  // One that has happened, as everything has in a dry run, and stands there for a piece of recorded work
  // (core/work.h); work() is its number, 0 of any other event.
  static Event OfWork(int64_t work);
  // The same happening, with a number of a recorder's own.
  Event WithWork(int64_t work) const;
  int64_t work() const { return work_; }

 private:
  friend class EventSource;
  friend Event Both(const Event& a, const Event& b);
  struct State;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
  int64_t work_ = 0;
};

// The side that makes an Event happen, exactly once.
class EventSource {
 public:
  EventSource();
  Event event() const { return Event(state_); }
  // What it is about begins; the first call counts. Calls, and Set after them, are one after the other.
  void Begin();
  void Set();                  // happened
  void Fail(Failure failure);  // will never happen; Wait throws. Ignored after Set or Fail.

 private:
  std::shared_ptr<Event::State> state_;
};

// Of two that stand for recorded work of a dry run, the one that was begun later: those that are put together
// here lie on one lane, which ends them in that order. Else it happens once both have happened; fails, once
// both have happened or failed, if one has failed.
Event Both(const Event& a, const Event& b);

}  // namespace longspan
