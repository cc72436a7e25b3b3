// Background: a thread that does things beside the one that computes, such as copies and disk I/O.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "core/event.h"

namespace longspan {

class Background {
 public:
  // `before_each` is called in the thread before each task; null: nothing is. Tests slow it down with that.
  // Throws Error(kResource) if the system has no more threads.
  explicit Background(std::function<void()> before_each = nullptr);
  // Waits for the task that runs. The events of those that haven't begun fail.
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  // Runs `task` once `after` has happened; tasks that are ready run one at a time, in the order in which they
  // became so. The event says that it has ended, or fails with what it threw or with what made `after` fail:
  // then it never began. Never blocks. What the task refers to outlives the event.
  Event Post(std::function<void()> task, const Event& after = {});

 private:
  struct Queue;

  const std::shared_ptr<Queue> queue_;  // also of events that this waits for
  std::thread thread_;
};

}  // namespace longspan
