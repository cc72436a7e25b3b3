#include "cli/commands.h"

#include "cli/bench_command.h"
#include "cli/calibrate_command.h"
#include "cli/convert_command.h"
#include "cli/eval_command.h"
#include "cli/generate_command.h"
#include "cli/plan_command.h"
#include "cli/tokenize_command.h"
#include "cli/train_command.h"
#include "cli/verify_command.h"

namespace longspan {
namespace {

constexpr Command kCommands[] = {
    {"train", "[RECIPE.yml] [key=value ...]", "trains a model", TrainCommand,
     /*takes_processes=*/true},
    {"tokenize", "[RECIPE.yml] [key=value ...]", "writes the token ids of text to a file", TokenizeCommand},
    {"eval", "[RECIPE.yml] [key=value ...]", "loss by position, or retrieval from a long text", EvalCommand},
    {"generate", "[RECIPE.yml] [key=value ...]", "prints text that goes on from a prompt", GenerateCommand},
    {"convert", "MODEL_PATH output=DIR [key=value ...]", "writes a model in another dtype, shards or form",
     ConvertCommand},
    {"verify", "[RECIPE.yml] [key=value ...]", "compares a step of a run's mesh with one of one rank",
     VerifyCommand, /*takes_processes=*/true},
    {"plan", "[RECIPE.yml] [key=value ...]",
     "what a run would take, on which machine, and how fast it would be", PlanCommand},
    {"calibrate", "[output=FILE] [key=value ...]", "measures this machine for `longspan plan hardware=this`",
     CalibrateCommand},
    {"bench", "SUBJECT [key=value ...]", "measures kernels or whole steps on this machine", BenchCommand},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }

}  // namespace longspan
