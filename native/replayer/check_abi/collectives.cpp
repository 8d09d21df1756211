// Holds gpu/collective_api.h, and the values of datatype.h and plan.h, against the vendor's header.
// Compiled only, by `make check-abi`: -DCHECK_CUDA with nccl.h, -DCHECK_HIP with rccl/rccl.h.
#include "../gpu/collective_api.h"

#include "../datatype.h"
#include "../gpu/vendors.h"
#include "../plan.h"
#include "signature.h"

#ifdef CHECK_CUDA
#include <nccl.h>
#else
#include <rccl/rccl.h>
#endif

namespace collscope::gpu {

static_assert(sizeof(ncclUniqueId) == sizeof(UniqueId));
static_assert(alignof(ncclUniqueId) == alignof(UniqueId));
static_assert(sizeof(ncclUniqueId::internal) == sizeof(UniqueId::internal));

static_assert(ncclSuccess == collective_success);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 14, 0)
static_assert(ncclInProgress == collective_in_progress);
#endif

static_assert(ncclInt8 == static_cast<int>(Datatype::Int8));
static_assert(ncclUint8 == static_cast<int>(Datatype::Uint8));
static_assert(ncclInt32 == static_cast<int>(Datatype::Int32));
static_assert(ncclUint32 == static_cast<int>(Datatype::Uint32));
static_assert(ncclInt64 == static_cast<int>(Datatype::Int64));
static_assert(ncclUint64 == static_cast<int>(Datatype::Uint64));
static_assert(ncclFloat16 == static_cast<int>(Datatype::Float16));
static_assert(ncclFloat32 == static_cast<int>(Datatype::Float32));
static_assert(ncclFloat64 == static_cast<int>(Datatype::Float64));
static_assert(ncclBfloat16 == static_cast<int>(Datatype::Bfloat16));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
#if defined(CHECK_CUDA) || NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
static_assert(ncclFloat8e4m3 == static_cast<int>(Datatype::Float8e4m3));
static_assert(ncclFloat8e5m2 == static_cast<int>(Datatype::Float8e5m2));
#else
static_assert(ncclFp8E4M3 == static_cast<int>(Datatype::Float8e4m3));
static_assert(ncclFp8E5M2 == static_cast<int>(Datatype::Float8e5m2));
#endif
#endif

static_assert(ncclSum == static_cast<int>(Redop::Sum));
static_assert(ncclProd == static_cast<int>(Redop::Prod));
static_assert(ncclMax == static_cast<int>(Redop::Max));
static_assert(ncclMin == static_cast<int>(Redop::Min));
static_assert(ncclAvg == static_cast<int>(Redop::Avg));

static_assert(oldest_collective_version == NCCL_VERSION(2, 10, 0));

#define CHECK(member, name, parameters)                                                            \
    static_assert(check_abi::same_signature<decltype(CollectiveLibrary::member), decltype(&name)>, \
                  #name);
COLLSCOPE_COLLECTIVE_REQUIRED(CHECK)
COLLSCOPE_COLLECTIVE_OPTIONAL(CHECK)
// A function that vendors spell differently: its name in the table, and its signature.
#define CHECK_SPELLED(vendor, member, place, name)                                                 \
    static_assert(std::string_view(vendor.member[place]) == #name);                                \
    static_assert(check_abi::same_signature<decltype(CollectiveLibrary::member), decltype(&name)>, \
                  #name);
#ifdef CHECK_CUDA
CHECK_SPELLED(cuda, all_to_all, 0, ncclAlltoAll)
#else
CHECK_SPELLED(hip, all_to_all, 1, ncclAllToAll)
CHECK_SPELLED(hip, all_to_allv, 1, ncclAllToAllv)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
CHECK_SPELLED(hip, all_to_all, 0, ncclAlltoAll)
CHECK_SPELLED(hip, all_to_allv, 0, ncclAlltoAllv)
#endif
#endif
static_assert(check_abi::same_signature<decltype(CollectiveLibrary::get_error_string),
                                        decltype(&ncclGetErrorString)>);
static_assert(check_abi::same_signature<decltype(CollectiveLibrary::get_last_error),
                                        decltype(&ncclGetLastError)>);

}  // namespace collscope::gpu
