#include "started_by.h"

#include <charconv>
#include <optional>
#include <string_view>

namespace collscope {

namespace {

std::optional<int> number(const char* text) {
    const std::string_view digits = text == nullptr ? "" : text;
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
        return std::nullopt;
    }
    return value;
}

// Rank and number of ranks, by launcher; the first pair that is set counts (as in replay/mpi.py).
constexpr const char* pairs[][2] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
};
// What names a launcher; the first that is set counts. PALS is HPE's, below PBS or Slurm.
constexpr const char* names[][2] = {
    {"OMPI_COMM_WORLD_SIZE", "Open MPI (mpirun)"},
    {"PALS_RANKID", "PALS (aprun, mpiexec)"},
    {"FLUX_TASK_RANK", "Flux (flux run)"},
    {"SLURM_STEP_NUM_TASKS", "Slurm (srun)"},
};

std::string remedy(const StartedBy& started, bool open_mpi) {
    if (started.launcher.starts_with("Slurm")) {
        const std::string srun = open_mpi ? "srun --mpi=pmix" : "srun --mpi=pmi2";
        return "Start them with '" + srun + "' ('srun --mpi=list' shows what there is), or run " +
               "collscope alone with --mpiexec '" + srun + "'";
    }
    if (started.launcher.starts_with("Flux")) {
        return open_mpi ? "Start them with 'flux run -o pmi=pmix'"
                        : "Start them with 'flux run -o pmi=simple'";
    }
    return "Start them with the mpiexec of this MPI, or build the replayer with the launcher's MPI "
           "and name it with --replayer (docs/clusters.md)";
}

}  // namespace

StartedBy started_by(const Getenv& get) {
    StartedBy out;
    for (const auto& [rank, size] : pairs) {
        const std::optional<int> mine = number(get(rank));
        const std::optional<int> all = number(get(size));
        if (mine && all) {
            out.rank = *mine;
            out.size = *all;
            break;
        }
    }
    out.launcher = "mpiexec";
    for (const auto& [variable, name] : names) {
        if (get(variable) != nullptr) {
            out.launcher = name;
            break;
        }
    }
    out.pmix = get("PMIX_NAMESPACE") != nullptr;
    for (const char* variable : {"PMI_FD", "PMI_PORT", "PMI_CONTROL_PORT", "PMI_RANK"}) {
        out.pmi = out.pmi || get(variable) != nullptr;
    }
    return out;
}

std::string not_joined(const StartedBy& started, const std::string& mpi) {
    if (started.size < 2) {
        return {};
    }
    const bool open_mpi = mpi.starts_with("openmpi");
    const std::string offer = started.pmi && started.pmix ? "PMI and PMIx, and it used neither"
                              : started.pmix              ? "PMIx, which it did not use"
                              : started.pmi               ? "PMI-1 or PMI-2, which it did not use"
                                                          : "it no PMI";
    return started.launcher + " started " + std::to_string(started.size) + " processes, but " +
           mpi + " treats each as a separate job: the launcher offers " + offer + ". " +
           remedy(started, open_mpi) + ".";
}

}  // namespace collscope
