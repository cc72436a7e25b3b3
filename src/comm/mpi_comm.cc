#include "comm/mpi_comm.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "comm/exchange.h"
#include "comm/mpi_job.h"
#include "core/check.h"

namespace longspan {
namespace {

// Of a piece of a sum: at most so much, and so much that two pieces of all ranks together are no more than
// that times sixteen.
int64_t SumPieceBytes(int num_ranks) {
  constexpr int64_t kLargest = int64_t{1} << 20, kSmallest = int64_t{16} << 10;
  return std::clamp(8 * kLargest / num_ranks, kSmallest, kLargest) / 64 * 64;
}

class MpiComm final : public ExchangeComm {
 public:
  // `job_ranks`: of the group, as the whole job numbers them.
  MpiComm(std::shared_ptr<MpiJob> job, const std::vector<int>& job_ranks, int rank,
          std::shared_ptr<Counts> counts)
      : ExchangeComm(rank, static_cast<int>(job_ranks.size()), std::move(counts)), job_(std::move(job)) {
    for (const int job_rank : job_ranks) members_.push_back({job_rank, job_->NumberGroupWith(job_rank)});
    job_ranks_ = std::make_shared<const std::vector<int>>(job_ranks);
  }

  void Abort(const std::string& reason) override { job_->End(reason); }
  void SetFailureTimeout(double seconds) override { job_->SetFailureTimeout(seconds); }

 private:
  struct Member {
    int job_rank;
    uint32_t group;                           // this one's number among those that we share
    uint32_t num_sent = 0, num_received = 0;  // point to point
  };

  std::unique_ptr<Comm> MakeSubgroup(std::span<const int> ranks, int my_place) override {
    job_->RequireGoingOn();
    std::vector<int> job_ranks;
    for (const int rank : ranks) job_ranks.push_back(members_[static_cast<size_t>(rank)].job_rank);
    return std::make_unique<MpiComm>(job_, job_ranks, my_place, shared_counts());
  }

  Event Post(WorkKind kind, std::span<const Push> pushes, std::span<const Pull> pulls,
             const Event& after) override;

  const std::shared_ptr<MpiJob> job_;
  std::vector<Member> members_;  // by rank
  std::shared_ptr<const std::vector<int>> job_ranks_;
  uint32_t num_collectives_ = 0;
};

Event MpiComm::Post(WorkKind kind, std::span<const Push> pushes, std::span<const Pull> pulls,
                    const Event& after) {
  const auto operation = std::make_shared<MpiOperation>();
  const Channel channel = ChannelOf(kind);
  operation->name = {kind, job_ranks_, -1, shared_counts()->step};
  const bool is_collective = channel == Channel::kCollective;
  const uint32_t number = is_collective ? num_collectives_++ : 0;
  // `count` is the member's of what is sent to it or received from it, point to point.
  const auto tag = [&](const Member& member, uint32_t& count) {
    return job_->Tag(member.group, channel, is_collective ? number : count++);
  };

  Push own = {rank(), nullptr, 0};  // a collective's, which no message takes along
  for (const Push& push : pushes) {
    if (is_collective && push.to == rank()) {
      own = push;
      continue;
    }
    Member& member = members_[static_cast<size_t>(push.to)];
    if (!is_collective) operation->name.peer = member.job_rank;
    operation->sends.push_back(
        {member.job_rank, tag(member, member.num_sent), const_cast<void*>(push.data), push.bytes, 0});
  }
  for (const Pull& pull : pulls) {
    if (pull.num_from > 1) {
      operation->piece_bytes = SumPieceBytes(size());
      operation->sum.sums = static_cast<float*>(pull.data);
      operation->sum.count = pull.bytes / int64_t{sizeof(float)};
      for (int p = pull.first_from; p < pull.first_from + pull.num_from; ++p) {
        Member& member = members_[static_cast<size_t>(p)];
        operation->sum.parts.push_back({member.job_rank, tag(member, member.num_received),
                                        p == rank() ? const_cast<void*>(own.data) : nullptr, pull.bytes, 0});
      }
    } else if (is_collective && pull.first_from == rank()) {
      CHECK(own.bytes == pull.bytes);
      operation->own_from = own.data;
      operation->own_to = pull.data;
      operation->own_bytes = own.bytes;
    } else {
      Member& member = members_[static_cast<size_t>(pull.first_from)];
      if (!is_collective) operation->name.peer = member.job_rank;
      operation->receives.push_back(
          {member.job_rank, tag(member, member.num_received), pull.data, pull.bytes, 0});
    }
  }
  return job_->Post(operation, after);
}

// This process's; MPI begins and ends once in a process.
std::shared_ptr<MpiJob>& TheJob() {
  static std::shared_ptr<MpiJob> job;
  return job;
}

}  // namespace

void RunMpiRank(const std::function<void(Comm&)>& body) {
  CHECK(TheJob() == nullptr);
  const std::shared_ptr<MpiJob> job = TheJob() = std::make_shared<MpiJob>();
  std::vector<int> all(static_cast<size_t>(job->size()));
  std::iota(all.begin(), all.end(), 0);
  MpiComm world(job, all, job->rank(), std::make_shared<Comm::Counts>());
  const auto fail = [&](const std::string& error) {
    world.Abort(error);
    job->SayLastWord(error);
    if (job->IsSaidBefore(error)) throw PeerFailed("");
  };
  try {
    body(world);
    world.Barrier();  // nobody leaves while another may still fail
  } catch (const PeerFailed& error) {
    world.Abort(error.what());
    job->SayLastWord("");
    throw PeerFailed(fmt::format("stopped, since rank {} failed", job->culprit()));
  } catch (const std::exception& error) {
    fail(error.what());
    throw;
  } catch (...) {
    fail("an error of unknown kind");
    throw;
  }
}

void LeaveMpi(int exit_code) {
  const std::shared_ptr<MpiJob> job = std::exchange(TheJob(), nullptr);
  if (job != nullptr) job->Leave(exit_code);
}

}  // namespace longspan
