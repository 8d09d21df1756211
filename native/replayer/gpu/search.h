// Where shared libraries of the GPU vendors may lie.
#pragma once

#include <string>
#include <vector>

#include "vendors.h"

namespace collscope::gpu {

std::vector<std::string> sonames_of(const LibraryFile& file);

// What to hand to dlopen, best first: sonames, then files of the folders of COLLSCOPE_LIBRARY_PATH.
std::vector<std::string> candidates(const LibraryFile& file);

// Major version of CUDA that an NCCL was built with, 0 when its file does not say.
int cuda_major_of_nccl(const std::string& path);

// Loaded files whose name begins with `prefix`.
std::vector<std::string> loaded_files(const std::string& prefix);

}  // namespace collscope::gpu
