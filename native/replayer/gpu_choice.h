// Which GPUs a process takes, decided from what all processes of its host see.
//
// Two ways of launching are common. Either every process sees all GPUs of the host, and takes those
// at its place; or a launcher gave it GPUs of its own (--gpus-per-task, CUDA_VISIBLE_DEVICES,
// HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES per rank), which it sees from number 0 on.
#pragma once

#include <string>
#include <vector>

namespace collscope {

// The GPUs that a process sees, by name; "" where a GPU has no name of its own.
struct Sight {
    std::vector<std::string> gpus;
};

// As text without NUL, to be sent: a line for each GPU.
std::string text_of(const Sight& sight);
Sight sight_of(const std::string& text);

struct GpuChoice {
    std::vector<int> devices;  // `per_process` numbers, as this process sees them
    std::string error;         // what is wrong with the launch, without place and remedy
};

// `here`: what each process of this host sees, in their order; `mine`: which of them this is. All
// processes of a host decide alike. A name that comes twice is the same GPU, unless
// `shared_names`: partitions of one GPU share theirs.
GpuChoice choose_gpus(const std::vector<Sight>& here, int mine, int per_process, bool shared_names);

}  // namespace collscope
