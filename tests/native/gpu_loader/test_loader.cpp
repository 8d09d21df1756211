// test_gpu_loader CASE: one way to find, or not to find, the libraries.
#include <cstdlib>
#include <map>
#include <string>

#include "check.h"
#include "gpu/loader.h"

using namespace collscope::gpu;

namespace {

const std::string fakes = FAKES;

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

Libraries load(const Vendor& vendor, const std::string& library, const std::string& runtime) {
    return load_libraries(vendor, fakes + library, fakes + runtime);
}

// Sonames come first, so the machine's own libraries are out of the way only where it has none.
Libraries search(const Vendor& vendor, const std::string& library, const std::string& folder) {
    setenv("COLLSCOPE_LIBRARY_PATH", ("/nowhere::" + fakes + folder).c_str(), 1);
    return load_libraries(vendor, fakes + library, "");
}

void good() {
    const Libraries found = load(cuda, "/good/libnccl.so.2", "/good/libcudart.so.13");
    CHECK(found.ok());
    CHECK(found.devices == 2 && found.no_gpu.empty());
    CHECK(found.collectives_name() == "nccl 2.28.9" && found.runtime_name() == "cuda 13.0");
    CHECK(found.collectives.path == fakes + "/good/libnccl.so.2");
    // Gather is there, Scatter and AlltoAll are not, and nothing of RCCL is asked for.
    const std::vector<std::string> missing{"ncclScatter", "ncclAlltoAll", "ncclGetLastError"};
    CHECK(found.collective_symbols.missing_optional == missing);
    CHECK(found.collectives.gather && !found.collectives.scatter);
    CHECK(!found.collectives.all_to_all);
    CHECK(found.runtime_symbols.resolved() == found.runtime_symbols.wanted - 1);
}

void lacking() {
    const Libraries found = load(cuda, "/lacking/libnccl.so.2", "/good/libcudart.so.12");
    CHECK(found.error ==
          "NCCL: " + fakes + "/lacking/libnccl.so.2 lacks ncclBroadcast. Use a newer one.");
}

void old() {
    const Libraries found = load(cuda, "/old/libnccl.so.2", "/good/libcudart.so.12");
    CHECK(contains(found.error, "version 2.8.4 is too old. Use 2.10 or newer."));
}

void absent() {
    const Libraries found = load(cuda, "/good/libnccl.so.3", "/good/libcudart.so.12");
    CHECK(contains(found.error, "libnccl.so.3: cannot open shared object file"));
    CHECK(contains(found.error, "Give its path with --library"));
}

void nogpu() {
    const std::string library = fakes + "/good/libnccl.so.2";
    const Libraries found = load_usable("auto", library, fakes + "/nogpu/libcudart.so.12");
    CHECK(found.error ==
          "cuda: no usable GPU: fake driver trouble (cudaGetDeviceCount: error 35). "
          "Check the driver, or use --backend host.");
}

// The runtime of the library's own major refuses the driver, another one works.
void usable() {
    const Libraries found = search(cuda, "/good/libnccl.so.2", "/nogpu");
    CHECK(found.ok() && found.devices == 1);
    CHECK(found.runtime.path == fakes + "/nogpu/libcudart.so.13");
}

// The library has +cuda12.4: runtime 12 is used, though 13 is newer.
void major() {
    const Libraries found = search(cuda, "/good/libnccl.so.2", "/good");
    CHECK(found.ok());
    CHECK(found.runtime.path == fakes + "/good/libcudart.so.12");
}

// RCCL was linked to runtime 6, so 7 beside it is not for it.
void rccl() {
    const Libraries found = search(hip, "/rocm/librccl.so.1", "/rocm");
    CHECK(found.ok() && found.devices == 4);
    CHECK(found.runtime_name() == "hip 6.4.43484" && found.collectives.name == "rccl");
    CHECK(found.runtime.path == fakes + "/rocm/libamdhip64.so.6");
}

// A library has one spelling of its all-to-all; without one the class is made of Send and Recv.
void rccl_spelled(const std::string& folder) {
    const Libraries found = search(hip, folder + "/librccl.so.1", "/rocm");
    CHECK(found.ok() && found.collectives.all_to_all && !found.collectives.all_to_allv);
    const std::vector<std::string> missing{"ncclScatter", "ncclAlltoAllv", "ncclGetLastError"};
    CHECK(found.collective_symbols.missing_optional == missing);
}

void rccl_old() { rccl_spelled("/rocm_old"); }
void rccl_new() { rccl_spelled("/rocm_new"); }

void two_runtimes() {
    const Libraries found = load(hip, "/rocm/librccl.so.1", "/rocm/libamdhip64.so.7");
    CHECK(contains(found.error, "libamdhip64.so.6") && contains(found.error, "are both loaded"));
}

void names() {
    CHECK(format_collective_version(2708) == "2.7.8");
    CHECK(format_collective_version(22203) == "2.22.3");
    CHECK(cuda.runtime_version(12090) == "12.9");
    CHECK(hip.runtime_version(50221153) == "5.2.21153");
    CHECK(vendors_for("auto", "/opt/rocm/lib/librccl.so.1.0") == std::vector{&hip});
    CHECK(vendors_for("auto", "/rccl/libnccl.so.2") == std::vector{&cuda});
    CHECK(vendors_for("auto", "").size() == 2);
    CHECK(vendors_for("hip", "/x/libnccl.so.2") == std::vector{&hip});
}

}  // namespace

int main(int argc, char** argv) {
    const std::map<std::string, void (*)()> cases{{"good", good},
                                                  {"lacking", lacking},
                                                  {"old", old},
                                                  {"absent", absent},
                                                  {"nogpu", nogpu},
                                                  {"usable", usable},
                                                  {"major", major},
                                                  {"rccl", rccl},
                                                  {"rccl_old", rccl_old},
                                                  {"rccl_new", rccl_new},
                                                  {"two_runtimes", two_runtimes},
                                                  {"names", names}};
    cases.at(argc > 1 ? argv[1] : "good")();
    return check::result();
}
