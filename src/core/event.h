// Event: something asynchronous that will have happened (a message, a copy, a disk write).
#pragma once

#include <exception>
#include <functional>
#include <memory>

namespace longspan {

// A cheap handle; copies refer to the same happening. A default-made Event has already happened.
class Event {
 public:
  Event() = default;
  bool Done() const;  // never blocks; true also after a failure
  // Blocks until it has happened: spins for at most 50 µs, then sleeps. Rethrows what made it fail.
  // Code that computes waits through Backend::Wait, which also accounts for the time.
  void Wait() const;
  // Calls `callback` once it has happened, with what made it fail or null: at once if that is so already,
  // else in the thread that makes it happen. So a callback is short, takes no lock that may be held there,
  // and doesn't throw.
  void OnDone(std::function<void(const std::exception_ptr&)> callback) const;

 private:
  friend class EventSource;
  struct State;
  explicit Event(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

// The side that makes an Event happen, exactly once.
class EventSource {
 public:
  EventSource();
  Event event() const { return Event(state_); }
  void Set();                           // happened
  void Fail(std::exception_ptr error);  // will never happen; Wait rethrows. Ignored after Set or Fail.

 private:
  std::shared_ptr<Event::State> state_;
};

}  // namespace longspan
