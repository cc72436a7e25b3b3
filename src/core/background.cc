#include "core/background.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/failure.h"

namespace longspan {
namespace {

struct Task {
  std::function<void()> run;
  EventSource source;
};

void Stopped() { throw std::logic_error("internal error: a background thread ended before its task"); }

}  // namespace

struct Background::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> ready;
  bool stopping = false;

  void Add(Task task) {
    {
      std::lock_guard lock(mutex);
      if (!stopping) {
        ready.push_back(std::move(task));
        changed.notify_one();
        return;
      }
    }
    task.source.Fail(Stopped);
  }

  static void Do(Task task, const std::function<void()>& before_each) {
    Failure failure;
    try {
      if (before_each) before_each();
      task.source.Begin();
      task.run();
    } catch (...) {
      failure = CurrentFailure();
    }
    task.source.Fail(std::move(failure));  // sets it where there is none
  }

  void Work(const std::function<void()>& before_each) {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return stopping || !ready.empty(); });
      if (stopping) return;
      Task task = std::move(ready.front());
      ready.pop_front();
      lock.unlock();
      Do(std::move(task), before_each);
      lock.lock();
    }
  }
};

Background::Background(std::function<void()> before_each) : queue_(std::make_shared<Queue>()) {
  try {
    thread_ =
        std::thread([queue = queue_, before_each = std::move(before_each)] { queue->Work(before_each); });
  } catch (const std::system_error& error) {
    throw Error(
        fmt::format("cannot start a thread for copies in the background: {}; use fewer ranks, or raise "
                    "the limits on processes and memory (ulimit -u, ulimit -v)",
                    error.code().message()),
        ExitCode::kResource);
  }
}

Background::~Background() {
  std::deque<Task> left;
  {
    std::lock_guard lock(queue_->mutex);
    queue_->stopping = true;
    left.swap(queue_->ready);
  }
  queue_->changed.notify_one();
  thread_.join();
  for (Task& task : left) task.source.Fail(Stopped);
}

Event Background::Post(std::function<void()> task, const Event& after) {
  Task posted{std::move(task), {}};
  const Event event = posted.source.event();
  after.OnDone([queue = queue_, posted = std::move(posted)](const Failure& failure) mutable {
    if (failure)
      posted.source.Fail(failure);
    else
      queue->Add(std::move(posted));
  });
  return event;
}

}  // namespace longspan
