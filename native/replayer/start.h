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

// What `work` returns. It does not run, and one line is said, where a launcher started several
// processes of which MPI knows nothing. Of what it throws, as when memory runs out, one line is said, and all
// processes end: the others wait for this one.
int guarded(const char* program, const std::function<int()>& work);

// Says on the writer what is wrong, and returns `code`.
int refuse(const Control& control, const std::string& what, int code);

// Text of a file on every process, read by the writer; `status` tells when there is none but must
// be. Collective, as the two below.
std::string read_everywhere(const Control& control, const std::string& path, bool must_be,
                            Status& status);

// The backend all processes use: `auto` means GPUs where every process has some, else the host.
std::unique_ptr<Backend> make_backend(const Options& options, const Plan& plan,
                                      const Control& control, Status& status);

// By rank of the plan.
std::vector<std::string> device_names(const Backend& backend, const Control& control);

}  // namespace collscope
