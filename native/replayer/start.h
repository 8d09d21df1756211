// How every program begins: files that all processes know, the backend they agree on, its devices.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend.h"
#include "control.h"
#include "options.h"
#include "plan.h"

namespace collscope {

inline constexpr int exit_usage = 2;
inline constexpr int exit_input = 3;
inline constexpr int exit_library = 5;

// Runs `work` and returns its exit code. Prints one line and does not run it where a launcher
// started several processes that MPI takes for jobs of their own. When `work` throws, as when
// memory runs out, prints one line and ends all processes, since the others wait for this one.
int guarded(const char* program, const std::function<int()>& work);

// Prints what is wrong, on the writer only. Returns `code`.
int refuse(const Control& control, const std::string& what, int code);

// The text of a file, which the writer reads, on every process. `status` is an error when the file
// cannot be read and `must_be` is set. Collective, like the two functions below.
std::string read_everywhere(const Control& control, const std::string& path, bool must_be,
                            Status& status);

// The backend all processes use: `auto` means GPUs where every process has some, else the host.
std::unique_ptr<Backend> make_backend(const Options& options, const Plan& plan,
                                      const Control& control, Status& status);

// By rank of the plan.
std::vector<std::string> device_names(const Backend& backend, const Control& control);

}  // namespace collscope
