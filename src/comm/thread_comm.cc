#include "comm/thread_comm.h"

#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "comm/exchange.h"
#include "comm/thread_job.h"
#include "core/check.h"
#include "core/report_error.h"

namespace longspan {
namespace {

class ThreadComm final : public ExchangeComm {
 public:
  ThreadComm(std::shared_ptr<ThreadJob> job, std::shared_ptr<ThreadJob::Group> group, int rank,
             std::shared_ptr<Counts> counts)
      : ExchangeComm(rank, group->size(), std::move(counts)),
        job_(std::move(job)),
        group_(std::move(group)) {}

  void Abort(const std::string& reason) override {
    job_->End(fmt::format("rank {} failed: {}", group_->job_rank(rank()), reason));
  }
  void SetFailureTimeout(double seconds) override { job_->SetFailureTimeout(seconds); }

 private:
  std::unique_ptr<Comm> MakeSubgroup(std::span<const int> ranks, int my_place) override {
    const int count = num_subgroups_[std::vector<int>(ranks.begin(), ranks.end())]++;
    return std::make_unique<ThreadComm>(job_, job_->Subgroup(*group_, ranks, count), my_place,
                                        shared_counts());
  }

  Event Post(WorkKind kind, std::span<const Push> pushes, std::span<const Pull> pulls,
             const Event& after) override {
    return job_->Post(group_, kind, shared_counts()->step, rank(), pushes, pulls, after);
  }

  const std::shared_ptr<ThreadJob> job_;
  const std::shared_ptr<ThreadJob::Group> group_;
  std::map<std::vector<int>, int> num_subgroups_;  // that I have made, by their ranks
};

// The errors of a job's ranks. All that may be shown are kept to the end: a rank may still look at its own.
class FirstError {
 public:
  void Add(std::exception_ptr error, bool is_peers) {
    std::lock_guard lock(mutex_);
    std::exception_ptr& first = is_peers ? first_of_peer_ : first_own_;
    if (!first) first = std::move(error);
  }
  // Anyone's own before a PeerFailed, which only tells of another's.
  void Rethrow() const {
    std::lock_guard lock(mutex_);
    if (first_own_) std::rethrow_exception(first_own_);
    if (first_of_peer_) std::rethrow_exception(first_of_peer_);
  }
  // Where a rank doesn't come out of what it is in: a thread can't be ended alone.
  [[noreturn]] void EndProcess() const {
    try {
      Rethrow();
      throw Error("a rank failed and doesn't come to its end", ExitCode::kPeer);
    } catch (...) {
      std::_Exit(ReportError(""));
    }
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr first_own_, first_of_peer_;
};

}  // namespace

void RunThreadRanks(int num_ranks, const std::function<void(Comm&)>& body) {
  CHECK(num_ranks > 0);
  const auto job = std::make_shared<ThreadJob>(num_ranks);
  const auto world = job->World();
  FirstError first_error;

  const auto run_rank = [&](int rank) {
    ThreadComm comm(job, world, rank, std::make_shared<Comm::Counts>());
    try {
      body(comm);
    } catch (const std::exception& error) {
      first_error.Add(std::current_exception(), dynamic_cast<const PeerFailed*>(&error) != nullptr);
      comm.Abort(error.what());
    } catch (...) {
      first_error.Add(std::current_exception(), false);
      comm.Abort("an error of unknown kind");
    }
    job->RankEnds();
  };

  std::vector<std::thread> workers, ranks;
  try {
    for (int r = 0; r < num_ranks; ++r) workers.emplace_back([&job, r] { job->Work(r); });
    for (int r = 0; r < num_ranks; ++r) ranks.emplace_back(run_rank, r);
    if (!job->WatchRanks()) first_error.EndProcess();
  } catch (const std::system_error& error) {
    const std::string message = fmt::format(
        "cannot start the {} threads of the ranks (ranks={}): {}; use fewer ranks, or raise the limits on "
        "processes and memory (ulimit -u, ulimit -v)",
        2 * num_ranks, num_ranks, error.code().message());
    first_error.Add(std::make_exception_ptr(Error(message, ExitCode::kResource)), false);
    job->End(message);
  }
  for (std::thread& rank : ranks) rank.join();
  job->End("the job has ended");
  for (std::thread& worker : workers) worker.join();
  first_error.Rethrow();
}

}  // namespace longspan
