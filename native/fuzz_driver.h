// A driver for fuzz targets without libFuzzer: it mutates seed files blindly.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fuzz {

using Tricks = std::vector<std::string_view>;  // pieces that mean something to the target

class Mutator {
public:
    Mutator(std::vector<std::string> seeds, Tricks tricks, unsigned number)
        : seeds_(std::move(seeds)), tricks_(std::move(tricks)), random_(number) {}

    std::size_t below(std::size_t limit) {
        return limit == 0 ? 0 : std::uniform_int_distribution<std::size_t>(0, limit - 1)(random_);
    }

    std::string next() {
        std::string text = slice(2000);
        for (std::size_t i = 1 + below(6); i > 0; --i) {
            mutate(text);
        }
        return text;
    }

private:
    // A stretch of a seed, whole lines more often than not.
    std::string slice(std::size_t longest) {
        const std::string& seed = seeds_[below(seeds_.size())];
        std::size_t start = below(seed.size());
        if (below(4) != 0) {
            start = seed.rfind('\n', start);
            start = start == std::string::npos ? 0 : start + 1;
        }
        return seed.substr(start, 1 + below(longest));
    }

    void mutate(std::string& text) {
        const std::size_t at = below(text.size() + 1);
        switch (below(6)) {
            case 0:
                if (at < text.size()) {
                    text[at] = static_cast<char>(below(256));
                }
                break;
            case 1:
                text.erase(at, 1 + below(40));
                break;
            case 2:
                text.insert(at, slice(300));
                break;
            case 3:
                text.insert(at, tricks_[below(tricks_.size())]);
                break;
            case 4:
                text.resize(at);
                break;
            default:
                text += text.substr(at, 200);
                break;
        }
    }

    std::vector<std::string> seeds_;
    Tricks tricks_;
    std::mt19937_64 random_;
};

// fuzz ITERATIONS SEED_NUMBER FILE...; check takes an input and any number to choose by.
template <class Check>
int run(int argc, char** argv, Tricks tricks, Check check) {
    if (argc < 4) {
        std::fprintf(stderr, "usage: fuzz ITERATIONS SEED_NUMBER FILE...\n");
        return 2;
    }
    std::vector<std::string> seeds;
    for (int i = 3; i < argc; ++i) {
        std::ifstream file(argv[i], std::ios::binary);
        seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
        if (seeds.back().empty()) {
            std::fprintf(stderr, "%s: cannot be read or is empty. Give another.\n", argv[i]);
            return 3;
        }
    }
    Mutator mutator(std::move(seeds), std::move(tricks), static_cast<unsigned>(std::atoi(argv[2])));
    const long iterations = std::atol(argv[1]);
    for (long i = 0; i < iterations; ++i) {
        check(mutator.next(), mutator.below(1u << 30));
    }
    std::printf("%ld inputs, no failure\n", iterations);
    return 0;
}

}  // namespace fuzz
