// Job: what a run works with once every default is resolved and every input is opened and checked. Made
// before any rank starts or any file is written, so that whatever is wrong is said first; then shared by all
// ranks, read only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/mesh.h"
#include "data/mixture.h"
#include "data/tokenizer.h"
#include "model/activations.h"
#include "model/config.h"
#include "model/model.h"
#include "parallel/layout.h"
#include "train/tier.h"
#include "train/train_config.h"

namespace longspan {

struct Job {
  TrainConfig config;  // no default left: ranks, threads, mesh, layout, schedule, run name
  ModelConfig model;
  std::string model_json;      // the config.json of a checkpoint, but for its dtype
  std::string config_changes;  // which of its keys the run changed, "key: before → after; …"; empty: none
  std::string model_directory;  // empty for a built-in model, which starts from scratch
  std::unique_ptr<Tokenizer> tokenizer;
  std::string tokenizer_directory;      // whose tokenizer files a checkpoint gets; empty: none
  std::vector<DataSource> sources;      // what is trained on; at least one
  std::unique_ptr<Corpus> eval_corpus;  // null: no evaluation
  MeshShape mesh;
  DType dtype = DType::kFloat32;
  MaskSpec mask;
  std::vector<std::string> strategies;  // of each of the model's layer kinds, in their order
  ActivationPolicy activations;         // what a layer keeps: of what its backward pass reads
  IoHooks io_hooks;                     // for tests
  std::function<WorkRecorder*(Comm& world)> message_recorder;  // for tests: whom a rank reports messages to
  int64_t document_length = 0;  // without text: of each document of a sequence; 0: a sequence is one document
  bool forward_only = false;    // evaluation: nothing is kept for a backward pass, no gradients, no optimizer

  // Whether anything goes to the tier.
  bool offloads() const;
  // Whether checkpoints are saved.
  bool saves() const { return config.enable_checkpointing && !forward_only; }

  ModelOptions model_options() const;
  Layout MakeLayout() const;
  // How many ranks share the heads of layers of this kind; consecutive ones of those of a sequence.
  int head_ranks(size_t kind) const;
  // Rows of a sequence that are worked on at once.
  int64_t pass_length() const;
  int64_t micro_steps() const { return config.global_batch_size / mesh.groups(); }
  // Whether a step may take several passes with gradients.
  bool has_several_passes() const { return micro_steps() > 1 || pass_length() < config.max_target_length; }
  // Documents of document_length that fill a sequence.
  Documents EqualDocuments() const;
  // Tokens of a document of the text, or of EqualDocuments.
  int64_t mean_document_length() const;
  // Bytes of a rank's device memory, device_memory_limit; 0: no limit. Throws Error(kUsage) for another text.
  int64_t device_memory_limit() const;
  // Of the data that is trained on, and of the held-out text, from their beginnings.
  MixtureReader MakeReader() const;
  SequenceReader MakeEvalReader() const;
  std::string run_directory() const { return config.base_output_directory + "/" + config.run_name; }
};

// Throws Error (kUsage for a key, kInput for a model or a text) naming what to change.
Job PrepareJob(const TrainConfig& config);
// The first half of it, model and tokenizer; then the text; and the last, which resolves what is left open.
Job OpenModel(const TrainConfig& config);
// Without its tokenizer, which may take longer to read than a job takes to plan.
Job OpenModelAlone(const TrainConfig& config);
// The same of a model to run forward only, which must have weights: a built-in one is refused.
Job OpenTrainedModel(const TrainConfig& config);
Job OpenText(Job opened);
Job PrepareJob(Job opened);  // with its text opened or without
// The other half where sequences of max_target_length rows come from elsewhere, in a layout that is given.
Job PrepareJobWithoutText(Job opened);
// Opened, without tokenizer or text, with the model of another: `config` says nothing else of model_path and
// rope_*, and its sequences and passes are no longer. Documents are as long as the other's, of a text in the
// mean.
Job OfSameModel(const Job& other, const TrainConfig& config);
// Of a model and a text that are in memory, instead of what model_path and data_path name; no evaluation.
Job PrepareJob(const TrainConfig& config, const ModelConfig& model, std::unique_ptr<Corpus> corpus);

}  // namespace longspan
