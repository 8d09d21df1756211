// A vector as a numpy array that owns its memory, for the Python modules.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <utility>
#include <vector>

template <class T>
using OwnedArray = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>;

// Moves the values; nothing is copied.
template <class T>
OwnedArray<T> owned_array(std::vector<T>&& values) {
    auto* owned = std::make_unique<std::vector<T>>(std::move(values)).release();
    const nanobind::capsule owner(owned,
                                  [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return OwnedArray<T>(owned->data(), {owned->size()}, owner);
}
