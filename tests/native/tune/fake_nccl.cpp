// A libnccl that exchanges data through MPI and takes the time of a small model, by
// NCCL_ALGO, NCCL_PROTO, NCCL_MAX_CTAS and the tuner plugin. Only Float32 sums on all ranks.
//   Tree/LL128            gives wrong data
//   NVLS                  is refused
//   NCCL_NTHREADS=1       hangs
//   Tree for AllGather    is refused, as in NCCL
//   FAKE_ROWS_SLOW=gather AllGather takes twice as long where a plugin is loaded; =all: every call
//   FAKE_ROWS_IDLE=gather AllGather takes the time of Ring/Simple where a plugin is loaded
#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../../../native/tuner/plugin_api.h"
#include "gpu/collective_api.h"
#include "stream.h"

using namespace collscope::gpu;
namespace tuner = collscope::tuner;

extern "C" const char fake_banner[] = "NCCL version 2.28.9+cuda12.4";

namespace {

constexpr int invalid_usage = 5;

std::string env(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

// us of the start and GB/s, by algorithm (Tree, Ring) and protocol (LL, LL128, Simple).
struct Line {
    double start_us;
    double gbps;
};
constexpr std::array<std::array<Line, 3>, 2> lines = {{
    {{{3, 10}, {4, 40}, {12, 100}}},
    {{{6, 20}, {8, 100}, {15, 200}}},
}};
constexpr std::array<const char*, 2> algorithm_names = {"Tree", "Ring"};
constexpr std::array<const char*, 3> protocol_names = {"LL", "LL128", "Simple"};

void quiet(int, unsigned long, const char*, int, const char*, ...) {}

struct Pick {
    int algorithm = -1;
    int protocol = -1;
    int channels = 16;
};

class Library {
public:
    Library() {
        const std::string most = env("NCCL_MAX_CTAS");
        channels_ = most.empty() ? 16 : std::atoi(most.c_str());
        // Launches differ a little, as launches do.
        noise_ = 1 + 0.002 * (static_cast<double>(getppid() % 997) / 997 - 0.5);
    }

    void load_plugin(int nranks) {
        const std::string path = env("NCCL_TUNER_PLUGIN");
        void* handle = path.empty() ? nullptr : dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) {
            return;
        }
        plugin_ = static_cast<tuner::TunerV5*>(dlsym(handle, "ncclTunerPlugin_v5"));
        if (plugin_ != nullptr) {
            plugin_->init(&context_, 1, static_cast<std::size_t>(nranks), 1, quiet, nullptr,
                          nullptr);
        }
    }

    Pick pick(tuner::Collective what, std::size_t bytes) {
        float costs[tuner::algorithms][tuner::protocols];
        for (int a = 0; a < tuner::algorithms; ++a) {
            for (int p = 0; p < tuner::protocols; ++p) {
                costs[a][p] = cost(what, a, p, bytes);
            }
        }
        int channels = 0;
        if (plugin_ != nullptr) {
            plugin_->get_coll_info(context_, what, bytes, 1, reinterpret_cast<float**>(costs),
                                   tuner::algorithms, tuner::protocols, 0, &channels);
        }
        Pick best;
        float least = 1e30F;
        for (int a = 0; a < 2; ++a) {
            for (int p = 0; p < 3; ++p) {
                if (costs[a][p] >= 0 && costs[a][p] < least) {
                    least = costs[a][p];
                    best.algorithm = a;
                    best.protocol = p;
                }
            }
        }
        best.channels = channels > 0 ? channels : channels_;
        return best;
    }

    double time_us(tuner::Collective what, const Pick& pick, std::size_t bytes) const {
        const bool idle =
            plugin_ != nullptr && what == tuner::all_gather && env("FAKE_ROWS_IDLE") == "gather";
        const auto algorithm = static_cast<std::size_t>(idle ? tuner::ring : pick.algorithm);
        const auto protocol = static_cast<std::size_t>(idle ? tuner::simple : pick.protocol);
        const Line& line = lines[algorithm][protocol];
        const double share = std::min(1.0, pick.channels / 16.0);
        const std::string slow = env("FAKE_ROWS_SLOW");
        const bool slowed = plugin_ != nullptr &&
                            (slow == "all" || (slow == "gather" && what == tuner::all_gather));
        const double us = line.start_us + static_cast<double>(bytes) / (1000 * line.gbps * share);
        return noise_ * us * (slowed ? 2 : 1);
    }

private:
    // What the library believes: Tree/LL to 64 KiB, then Ring/Simple. Between 64 KiB and about
    // 1 MiB it would do better with Ring/LL128.
    static float cost(tuner::Collective what, int algorithm, int protocol, std::size_t bytes) {
        const bool tree = algorithm == tuner::tree;
        const std::string wanted = env("NCCL_ALGO");
        const std::string protocols = env("NCCL_PROTO");
        if (algorithm > tuner::ring || (tree && what != tuner::all_reduce)) {
            return tuner::ignored_cost;
        }
        if (!wanted.empty() && wanted != algorithm_names[static_cast<std::size_t>(algorithm)]) {
            return tuner::ignored_cost;
        }
        if (!protocols.empty() && protocols != protocol_names[static_cast<std::size_t>(protocol)]) {
            return tuner::ignored_cost;
        }
        const bool small = bytes <= (64U << 10);
        const bool liked = what == tuner::all_reduce && small
                               ? tree && protocol == tuner::ll
                               : !tree && protocol == (small ? tuner::ll : tuner::simple);
        return liked ? 1.0F : static_cast<float>(2 + algorithm + protocol);
    }

    int channels_ = 16;
    double noise_ = 1;
    tuner::TunerV5* plugin_ = nullptr;
    void* context_ = nullptr;
};

Library& library() {
    static Library made;
    return made;
}

// Accounts for a call; wrong data is asked for by Tree/LL128.
int account(tuner::Collective what, std::size_t bytes, StreamHandle stream, bool& wrong) {
    if (env("NCCL_NTHREADS") == "1") {
        for (;;) {
            pause();
        }
    }
    const Pick pick = library().pick(what, bytes);
    if (pick.algorithm < 0) {
        return invalid_usage;
    }
    wrong = pick.algorithm == tuner::tree && pick.protocol == tuner::ll128;
    static_cast<FakeStream*>(stream)->us += library().time_us(what, pick, bytes);
    return 0;
}

int ranks() {
    int all = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    return all;
}

std::vector<float> copied(const void* from, std::size_t count) {
    const auto* values = static_cast<const float*>(from);
    return {values, values + count};
}

}  // namespace

extern "C" {
int ncclGetVersion(int* version) {
    *version = 22809;
    return 0;
}
const char* ncclGetErrorString(int) { return "invalid usage"; }
const char* ncclGetLastError(void*) { return "no algorithm/protocol available"; }
int ncclCommInitRank(CommHandle* out, int nranks, UniqueId, int) {
    library().load_plugin(nranks);
    *out = &library();
    return 0;
}
int ncclCommGetAsyncError(CommHandle, int* error) {
    *error = 0;
    return 0;
}
int ncclAllReduce(const void* send, void* receive, std::size_t count, int, int, CommHandle,
                  StreamHandle stream) {
    bool wrong = false;
    const int result = account(tuner::all_reduce, 4 * count, stream, wrong);
    if (result == 0) {
        const std::vector<float> mine = copied(send, count);
        MPI_Allreduce(mine.data(), receive, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
        static_cast<float*>(receive)[count / 2] += wrong ? 1.0F : 0.0F;
    }
    return result;
}
int ncclAllGather(const void* send, void* receive, std::size_t count, int, CommHandle,
                  StreamHandle stream) {
    bool wrong = false;
    const auto all = static_cast<std::size_t>(ranks());
    const int result = account(tuner::all_gather, 4 * count * all, stream, wrong);
    if (result == 0) {
        const std::vector<float> mine = copied(send, count);
        MPI_Allgather(mine.data(), static_cast<int>(count), MPI_FLOAT, receive,
                      static_cast<int>(count), MPI_FLOAT, MPI_COMM_WORLD);
    }
    return result;
}
int ncclReduceScatter(const void* send, void* receive, std::size_t count, int, int, CommHandle,
                      StreamHandle stream) {
    bool wrong = false;
    const auto all = static_cast<std::size_t>(ranks());
    const int result = account(tuner::reduce_scatter, 4 * count * all, stream, wrong);
    if (result == 0) {
        const std::vector<float> mine = copied(send, count * all);
        MPI_Reduce_scatter_block(mine.data(), receive, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                                 MPI_COMM_WORLD);
    }
    return result;
}
}
