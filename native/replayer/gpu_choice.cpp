#include "gpu_choice.h"

#include <algorithm>
#include <map>

namespace collscope {

namespace {

std::string number(std::size_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

// "processes 1 and 3 of this host would both take the GPU 0000:1b:00.0"
std::string taken_twice(const std::vector<Sight>& here, std::size_t wanted) {
    std::map<std::string, std::size_t> owner;
    for (std::size_t process = 0; process < here.size(); ++process) {
        for (std::size_t i = 0; i < wanted; ++i) {
            const std::string& name = here[process].gpus[i];
            const auto [at, fresh] = owner.try_emplace(name, process);
            if (!fresh && !name.empty()) {
                return "processes " + std::to_string(at->second) + " and " +
                       std::to_string(process) + " of this host would both take the GPU " + name;
            }
        }
    }
    return {};
}

}  // namespace

std::string text_of(const Sight& sight) {
    std::string out;
    for (const std::string& name : sight.gpus) {
        out += name + '\n';
    }
    return out;
}

Sight sight_of(const std::string& text) {
    Sight out;
    for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
        out.gpus.push_back(text.substr(begin, text.find('\n', begin) - begin));
    }
    return out;
}

GpuChoice choose_gpus(const std::vector<Sight>& here, int mine, int per_process,
                      bool shared_names) {
    const auto each = static_cast<std::size_t>(per_process);
    const std::size_t all = here.size() * each;
    std::size_t fewest = here.front().gpus.size();
    for (const Sight& sight : here) {
        fewest = std::min(fewest, sight.gpus.size());
    }
    GpuChoice out;
    int first = 0;
    if (fewest >= all) {
        first = mine * per_process;
    } else if (fewest < each) {
        out.error =
            "a process needs " + number(each, "GPU") + " but sees " + std::to_string(fewest);
    } else {
        const auto same = [&](const Sight& sight) { return sight.gpus == here.front().gpus; };
        const bool own = fewest == each;  // no more than it needs: somebody counted them out
        const std::string twice = shared_names && own ? "" : taken_twice(here, each);
        const bool named = std::none_of(here.front().gpus.begin(), here.front().gpus.end(),
                                        [](const std::string& name) { return name.empty(); });
        if (std::all_of(here.begin(), here.end(), same) && (!twice.empty() || !own)) {
            out.error = number(all, "GPU") + " are needed, but there " +
                        (fewest == 1 ? "is 1" : "are " + std::to_string(fewest)) +
                        ", which every process sees";
        } else if (!twice.empty()) {
            out.error = twice;
        } else if (!own && !named) {
            out.error = number(all, "GPU") + " are needed, but processes see " +
                        std::to_string(fewest) + " each, which cannot be distinguished";
        }
    }
    for (int i = 0; i < per_process; ++i) {
        out.devices.push_back(first + i);
    }
    return out;
}

}  // namespace collscope
