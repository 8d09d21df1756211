#include "host_op.h"

#include "large_count.h"
#include "reduce.h"

namespace collscope {

namespace {

// MPI_DATATYPE_NULL: MPI has no such type, it travels as bytes.
MPI_Datatype native_type(Datatype type) {
    switch (type) {
        case Datatype::Int8:
            return MPI_INT8_T;
        case Datatype::Uint8:
            return MPI_UINT8_T;
        case Datatype::Int32:
            return MPI_INT32_T;
        case Datatype::Uint32:
            return MPI_UINT32_T;
        case Datatype::Int64:
            return MPI_INT64_T;
        case Datatype::Uint64:
            return MPI_UINT64_T;
        case Datatype::Float32:
            return MPI_FLOAT;
        case Datatype::Float64:
            return MPI_DOUBLE;
        default:
            return MPI_DATATYPE_NULL;
    }
}

MPI_Op native_op(Redop redop) {
    switch (redop) {
        case Redop::Prod:
            return MPI_PROD;
        case Redop::Max:
            return MPI_MAX;
        case Redop::Min:
            return MPI_MIN;
        default:
            return MPI_SUM;
    }
}

// MPI hands an operator no context, so each combination is a function of its own.
template <Datatype D, Redop R>
void combine(void* in, void* inout, mpi::OpCount* count, MPI_Datatype*) {
    reduce(D, R, in, inout, static_cast<std::size_t>(*count));
}

template <Datatype D>
auto* function_of(Redop redop) {
    switch (redop) {
        case Redop::Prod:
            return &combine<D, Redop::Prod>;
        case Redop::Max:
            return &combine<D, Redop::Max>;
        case Redop::Min:
            return &combine<D, Redop::Min>;
        default:
            return &combine<D, Redop::Sum>;
    }
}

auto* function_of(Datatype type, Redop redop) {
    switch (type) {
        case Datatype::Float16:
            return function_of<Datatype::Float16>(redop);
        case Datatype::Bfloat16:
            return function_of<Datatype::Bfloat16>(redop);
        case Datatype::Float8e4m3:
            return function_of<Datatype::Float8e4m3>(redop);
        default:
            return function_of<Datatype::Float8e5m2>(redop);
    }
}

}  // namespace

HostOps::~HostOps() {
    for (auto& [key, op] : ops_) {
        MPI_Op_free(&op);
    }
    for (auto& [key, type] : types_) {
        MPI_Type_free(&type);
    }
}

MPI_Datatype HostOps::type(Datatype type) {
    if (const MPI_Datatype native = native_type(type); native != MPI_DATATYPE_NULL) {
        return native;
    }
    const auto [entry, fresh] = types_.try_emplace(type, MPI_DATATYPE_NULL);
    if (fresh) {
        MPI_Type_contiguous(static_cast<int>(itemsize(type)), MPI_BYTE, &entry->second);
        MPI_Type_commit(&entry->second);
    }
    return entry->second;
}

MPI_Op HostOps::op(Datatype type, Redop redop) {
    if (native_type(type) != MPI_DATATYPE_NULL) {
        return native_op(redop);
    }
    if (redop == Redop::Avg) {
        redop = Redop::Sum;
    }
    const auto [entry, fresh] = ops_.try_emplace({type, redop}, MPI_OP_NULL);
    if (fresh) {
        mpi::create_op(function_of(type, redop), entry->second);
    }
    return entry->second;
}

}  // namespace collscope
