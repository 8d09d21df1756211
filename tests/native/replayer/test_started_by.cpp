// Native tests of the message where MPI and the launcher do not understand each other.
#include <map>
#include <string>

#include "check.h"
#include "started_by.h"

namespace {

using namespace collscope;

using Environment = std::map<std::string, std::string>;

StartedBy started(const Environment& environment) {
    return started_by([&](const char* name) {
        const auto at = environment.find(name);
        return at == environment.end() ? nullptr : at->second.c_str();
    });
}

std::string told(const Environment& environment, const std::string& mpi) {
    return not_joined(started(environment), mpi);
}

// Variables as srun 22.05 sets them in a step of two tasks.
const Environment slurm = {
    {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "2"}};

Environment with(Environment environment, const Environment& more) {
    environment.insert(more.begin(), more.end());
    return environment;
}

void slurm_without_a_pmi() {
    CHECK(started(slurm).rank == 1 && started(slurm).size == 2);
    CHECK(told(slurm, "mpich 5.0.2") ==
          "Slurm (srun) started 2 processes, but mpich 5.0.2 treats each as a separate job: the "
          "launcher offers it no PMI. Start them with 'srun --mpi=pmi2' ('srun --mpi=list' shows "
          "what there is), or run collscope alone with --mpiexec 'srun --mpi=pmi2'.");
}

void slurm_with_another_pmi() {
    const Environment pmix =
        with(slurm, {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}});
    CHECK(told(pmix, "mpich 5.0.2").find("offers PMIx, which it did not use") != std::string::npos);
    const Environment pmi2 = with(slurm, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "18"}});
    const std::string open_mpi = told(pmi2, "openmpi 5.0.8");
    CHECK(open_mpi.find("offers PMI-1 or PMI-2, which it did not use") != std::string::npos);
    CHECK(open_mpi.find("'srun --mpi=pmix'") != std::string::npos);
}

void other_launchers() {
    const Environment flux = {
        {"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "8"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "8"}};
    CHECK(told(flux, "openmpi 5.0.8").starts_with("Flux (flux run) started 8 processes"));
    CHECK(told(flux, "openmpi 5.0.8").ends_with("'flux run -o pmi=pmix'."));
    const Environment pals = {{"PALS_RANKID", "3"},
                              {"PMI_RANK", "3"},
                              {"PMI_SIZE", "512"},
                              {"PMI_CONTROL_PORT", "20001"}};
    CHECK(told(pals, "mpich 5.0.2").starts_with("PALS (aprun, mpiexec) started 512 processes"));
    CHECK(told(pals, "mpich 5.0.2").find("--replayer") != std::string::npos);
    const Environment open_mpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"PMIX_NAMESPACE", "prterun"}};
    CHECK(started(open_mpi).rank == 2);
    CHECK(told(open_mpi, "mpich 5.0.2").starts_with("Open MPI (mpirun) started 4 processes"));
}

void one_process_is_no_launch() {
    CHECK(told({}, "mpich 5.0.2").empty());
    CHECK(told({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}}, "mpich 5.0.2").empty());
    CHECK(told({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, "mpich 5.0.2").empty());
    CHECK(told({{"PMI_RANK", "x"}, {"PMI_SIZE", "4"}}, "mpich 5.0.2").empty());
}

}  // namespace

int main() {
    slurm_without_a_pmi();
    slurm_with_another_pmi();
    other_launchers();
    one_process_is_no_launch();
    return check::result();
}
