#include "train/checkpoint_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/file.h"
#include "support/expect_error.h"
#include "support/failing_disk.h"
#include "support/files.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

class CheckpointFolder : public ::testing::Test {
 protected:
  void Make(const Names& names) const {
    for (const std::string& name : names) {
      fs::create_directories(folder_ + "/" + name);
      WriteFileAtomically(folder_ + "/" + name + "/state.json", name);
    }
  }
  void Link(const std::string& name) const { PointLatestAt(folder_, name, FileCalls::System()); }
  std::set<std::string> All() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.insert(entry.path().filename());
    return names;
  }
  Names NewestFirst() const {
    Names names;
    for (const std::string& path : CheckpointsNewestFirst(folder_)) {
      EXPECT_EQ(fs::path(path).parent_path(), folder_);
      names.push_back(fs::path(path).filename());
    }
    return names;
  }
  void Prune(const std::string& name, int64_t keep) const {
    PruneCheckpoints(folder_, name, keep, FileCalls::System());
  }

  const testing::TemporaryDirectory directory_;
  const std::string folder_ = directory_.path();
};

TEST_F(CheckpointFolder, IsOrderedByTheLinkAndThenByStep) {
  EXPECT_EQ(CheckpointsNewestFirst(folder_ + "/nowhere"), Names());
  EXPECT_EQ(NewestFirst(), Names());
  Make({"00000020", "99999999", "100000000", "00000100", ".tmp-00000200", "0000003", "notes", "0000020x"});
  EXPECT_EQ(NewestFirst(), (Names{"100000000", "99999999", "00000100", "00000020"}));
  Link("00000100");  // of a run that went back
  EXPECT_EQ(NewestFirst(), (Names{"00000100", "00000020"}));
  Link("00000150");  // lost
  EXPECT_EQ(NewestFirst(), (Names{"00000150", "00000100", "00000020"}));
  Link("mine");
  EXPECT_EQ(NewestFirst(), (Names{"mine", "100000000", "99999999", "00000100", "00000020"}));
}

TEST_F(CheckpointFolder, KeepsTheNewest) {
  const Names all = {"00000010", "00000020", "00000030", "00000040", "00000050"};
  Make(all);
  WriteFileAtomically(folder_ + "/00000007", "no checkpoint");
  Link("00000050");
  Prune("00000050", 0);
  EXPECT_EQ(All().size(), 7u);
  Prune("00000050", 4);
  EXPECT_EQ(All(),
            (std::set<std::string>{"00000007", "00000020", "00000030", "00000040", "00000050", "latest"}));
  // Of those of a run that went back the ones behind it go first.
  Prune("00000030", 2);
  EXPECT_EQ(All(), (std::set<std::string>{"00000007", "00000020", "00000030", "latest"}));
  Prune("00000030", 1);
  EXPECT_EQ(All(), (std::set<std::string>{"00000007", "00000030", "latest"}));
}

TEST_F(CheckpointFolder, KeepsWhatIsBeingRead) {
  Make({"00000010", "00000020", "00000030"});
  auto first = std::make_unique<ReadingCheckpoint>(folder_ + "/00000010"),
       second = std::make_unique<ReadingCheckpoint>(folder_ + "/00000010");
  Prune("00000030", 1);
  EXPECT_EQ(All(), (std::set<std::string>{"00000010", "00000030"}));
  first.reset();
  Prune("00000030", 1);
  EXPECT_EQ(All(), (std::set<std::string>{"00000010", "00000030"}));
  second.reset();
  Prune("00000030", 1);
  EXPECT_EQ(All(), (std::set<std::string>{"00000030"}));
  const ReadingCheckpoint nothing(folder_ + "/nowhere");
}

// A checkpoint is whole or not there, also when removing it is cut short.
TEST_F(CheckpointFolder, WhatCannotBeRemovedStaysWhole) {
  Make({"00000010", "00000020"});
  testing::FailingDisk disk;
  disk.good_renames = 0;
  testing::ExpectError(
      {"remove", "00000010"}, [&] { PruneCheckpoints(folder_, "00000020", 1, disk); }, ExitCode::kResource);
  EXPECT_EQ(ReadTextFile(folder_ + "/00000010/state.json"), "00000010");
}

TEST_F(CheckpointFolder, WhereALinkBelongsAFolderIsRefused) {
  RequireLink(folder_);  // no link at all
  fs::create_directory_symlink("nowhere", folder_ + "/latest");
  RequireLink(folder_);
  fs::remove(folder_ + "/latest");
  fs::create_directory(folder_ + "/latest");
  testing::ExpectError({folder_ + "/latest", "no symbolic link", "remove it"}, [&] { RequireLink(folder_); });
}

TEST_F(CheckpointFolder, TheLinkIsReplacedAtOnce) {
  Make({"00000010", "00000020", ".tmp-00000030"});
  Link("00000010");
  testing::FailingDisk disk;
  disk.good_renames = 0;
  testing::ExpectError(
      {"latest"}, [&] { PointLatestAt(folder_, "00000020", disk); }, ExitCode::kResource);
  EXPECT_EQ(fs::read_symlink(folder_ + "/latest"), "00000010");
  disk.good_renames = 1;  // the checkpoint's, not the link's
  testing::ExpectError(
      {"latest"}, [&] { PlaceCheckpoint(folder_, "00000030", disk); }, ExitCode::kResource);
  EXPECT_EQ(LatestCheckpoint(folder_), folder_ + "/00000010");
  RemoveTemporaries(folder_);
  EXPECT_EQ(All(), (std::set<std::string>{"00000010", "00000020", "00000030", "latest"}));
}

}  // namespace
}  // namespace longspan
