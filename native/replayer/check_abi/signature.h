// Compares a declaration of ours with the vendor's, parameter by parameter.
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>

namespace collscope::check_abi {

// Handles are pointers to different incomplete types, and enumerations are ints here, so types are
// the same when they are passed alike: same kind, same size, and for numbers the same sign.
template <typename Ours, typename Theirs>
constexpr bool same_parameter() {
    if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>) {
        if constexpr (!std::is_pointer_v<Ours> || !std::is_pointer_v<Theirs>) {
            return false;
        } else {
            using To = std::remove_pointer_t<Ours>;
            using From = std::remove_pointer_t<Theirs>;
            // int* for a pointer to an enumeration, Event* for a pointer to a handle.
            if constexpr (std::is_scalar_v<To> && std::is_scalar_v<From>) {
                return std::is_const_v<To> == std::is_const_v<From> &&
                       same_parameter<std::remove_cv_t<To>, std::remove_cv_t<From>>();
            } else {
                return std::is_const_v<To> == std::is_const_v<From>;
            }
        }
    } else if constexpr (std::is_enum_v<Theirs>) {
        return std::is_same_v<Ours, int> && sizeof(Theirs) == sizeof(int);
    } else if constexpr (std::is_integral_v<Theirs>) {
        return std::is_integral_v<Ours> && sizeof(Ours) == sizeof(Theirs) &&
               std::is_signed_v<Ours> == std::is_signed_v<Theirs>;
    } else if constexpr (std::is_class_v<Theirs>) {
        return std::is_class_v<Ours> && sizeof(Ours) == sizeof(Theirs) &&
               alignof(Ours) == alignof(Theirs) && std::is_trivially_copyable_v<Theirs>;
    } else {
        return std::is_same_v<Ours, Theirs>;
    }
}

template <typename Ours, typename Theirs>
struct SameSignature : std::false_type {};

template <typename... Ours, typename... Theirs, typename OurResult, typename TheirResult>
    requires(sizeof...(Ours) == sizeof...(Theirs))
struct SameSignature<OurResult (*)(Ours...), TheirResult (*)(Theirs...)>
    : std::bool_constant<same_parameter<OurResult, TheirResult>() &&
                         (same_parameter<Ours, Theirs>() && ...)> {};

template <typename Ours, typename Theirs>
inline constexpr bool same_signature = SameSignature<Ours, Theirs>::value;

}  // namespace collscope::check_abi
