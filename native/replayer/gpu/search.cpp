#include "search.h"

#include <link.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string_view>
#include <system_error>

namespace collscope::gpu {
namespace {

// The text lies behind the code and before the kernels: 3.5 MB into a file of 350 MB (NCCL 2.32).
constexpr std::size_t nccl_head_bytes = std::size_t{32} << 20;

std::vector<std::string> parted_by_colons(const char* text) {
    std::vector<std::string> parts;
    std::string_view rest = text ? text : "";
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find(':'), rest.size());
        if (end > 0) {
            parts.emplace_back(rest.substr(0, end));
        }
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return parts;
}

// Files of a folder named STEM.so…, highest version first. A folder that cannot be read has none.
std::vector<std::string> files_in(const std::string& folder, const std::string& stem) {
    std::vector<std::string> found;
    std::error_code error;
    for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
         it.increment(error)) {
        if (it->path().filename().string().starts_with(stem + ".so")) {
            found.push_back(it->path());
        }
    }
    std::sort(found.begin(), found.end(), std::greater<>());
    return found;
}

int collect_name(dl_phdr_info* info, std::size_t, void* names) {
    static_cast<std::set<std::string>*>(names)->insert(info->dlpi_name);
    return 0;
}

}  // namespace

std::vector<std::string> sonames_of(const LibraryFile& file) {
    std::vector<std::string> names;
    for (const char* soname : file.sonames) {
        if (soname) {
            names.emplace_back(soname);
        }
    }
    return names;
}

std::vector<std::string> candidates(const LibraryFile& file) {
    std::vector<std::string> found = sonames_of(file);
    std::vector<std::string> folders = parted_by_colons(std::getenv("COLLSCOPE_LIBRARY_PATH"));
    const char* root = file.root_variable ? std::getenv(file.root_variable) : nullptr;
    if (root) {
        folders.push_back(std::string(root) + "/lib");
    } else if (file.installed_in) {
        folders.push_back(file.installed_in);
    }
    for (const std::string& folder : folders) {
        const std::vector<std::string> files = files_in(folder, file.stem);
        found.insert(found.end(), files.begin(), files.end());
    }
    return found;
}

int cuda_major_of_nccl(const std::string& path) {
    // NCCL version 2.32.3+cuda12.9
    static constexpr std::string_view mark = "+cuda";
    std::ifstream in(path, std::ios::binary);
    std::string head(nccl_head_bytes, '\0');
    in.read(head.data(), static_cast<std::streamsize>(head.size()));
    head.resize(static_cast<std::size_t>(in.gcount()));
    std::size_t at = head.find(mark);
    while (at != std::string::npos) {
        const char* digits = head.c_str() + at + mark.size();
        if (std::isdigit(static_cast<unsigned char>(*digits))) {
            return std::atoi(digits);
        }
        at = head.find(mark, at + 1);
    }
    return 0;
}

std::vector<std::string> loaded_files(const std::string& prefix) {
    std::set<std::string> names;
    dl_iterate_phdr(collect_name, &names);
    std::set<std::string> files;
    for (const std::string& name : names) {
        if (!std::filesystem::path(name).filename().string().starts_with(prefix)) {
            continue;
        }
        std::error_code error;
        const std::filesystem::path real = std::filesystem::canonical(name, error);
        files.insert(error ? name : real.string());
    }
    return {files.begin(), files.end()};
}

}  // namespace collscope::gpu
