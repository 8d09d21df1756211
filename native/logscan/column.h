// A growing array of trivially copyable values whose memory numpy can use without a copy.
//
// A table is a struct of columns. Its function `columns` is the one list of them: export to Python
// and the digest go by it, each through `with(name, member)`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>
#include <utility>

namespace logscan {

// Why not std::vector: its memory cannot be released to another owner, and realloc moves large
// blocks by remapping pages, so growth neither copies nor touches fresh pages twice.
template <class T>
class Column {
    static_assert(std::is_trivially_copyable_v<T>);

public:
    Column() = default;
    Column(const Column&) = delete;
    Column& operator=(const Column&) = delete;
    Column(Column&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)),
          size_(std::exchange(other.size_, 0)),
          capacity_(std::exchange(other.capacity_, 0)) {}
    Column& operator=(Column&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
        return *this;
    }
    ~Column() { std::free(data_); }

    void push(T value) {
        if (size_ == capacity_) [[unlikely]] {
            grow();
        }
        data_[size_++] = value;
    }

    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }
    const T* data() const { return data_; }
    std::size_t size() const { return size_; }

    // Gives the memory away; the new owner frees it with std::free. Null when empty.
    T* release() {
        size_ = capacity_ = 0;
        return std::exchange(data_, nullptr);
    }

private:
    void grow() {
        const std::size_t wanted = capacity_ == 0 ? 1024 : capacity_ * 2;
        void* moved = std::realloc(static_cast<void*>(data_), wanted * sizeof(T));
        if (moved == nullptr) {
            throw std::bad_alloc();
        }
        data_ = static_cast<T*>(moved);
        capacity_ = wanted;
    }

    T* data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

// Whether `columns` of a table lists all that it has; `Beside` is what it has beside them.
template <class Table, class... Beside>
constexpr bool lists_all_columns() {
    std::size_t bytes = (0 + ... + sizeof(Beside));
    Table::columns([&bytes](const char*, auto) { bytes += sizeof(Column<char>); });
    return bytes == sizeof(Table);
}

}  // namespace logscan
