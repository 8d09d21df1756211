// The library called directly: AllReduce of SIZE bytes of bfloat16, in place, back to back between
// two events, as the replayer's `batch` does it, without the replayer. One process per GPU:
//
//     mpirun -np 4 ./direct SIZE BATCH BATCHES
//
// prints microseconds per call of the slowest rank, one line per batch. Linked to the library at
// build time, so that no binding of ours is involved.
#include <cuda_runtime.h>
#include <mpi.h>
#include <nccl.h>

#include <cstdio>
#include <cstdlib>

namespace {

void check(bool ok, const char* what) {
    if (ok) return;
    std::fprintf(stderr, "direct: %s failed\n", what);
    MPI_Abort(MPI_COMM_WORLD, 6);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    const std::size_t size = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1 << 20;
    const int batch = argc > 2 ? std::atoi(argv[2]) : 200;
    const int batches = argc > 3 ? std::atoi(argv[3]) : 21;
    int rank = 0;
    int nranks = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &nranks);
    check(cudaSetDevice(rank) == cudaSuccess, "cudaSetDevice");
    ncclUniqueId id{};
    if (rank == 0) check(ncclGetUniqueId(&id) == ncclSuccess, "ncclGetUniqueId");
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    ncclComm_t comm{};
    check(ncclCommInitRank(&comm, nranks, id, rank) == ncclSuccess, "ncclCommInitRank");
    void* data = nullptr;
    check(cudaMalloc(&data, size) == cudaSuccess, "cudaMalloc");
    check(cudaMemset(data, 0, size) == cudaSuccess, "cudaMemset");
    cudaStream_t stream{};
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess, "stream");
    cudaEvent_t start{};
    cudaEvent_t stop{};
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    for (int b = -2; b < batches; ++b) {
        MPI_Barrier(MPI_COMM_WORLD);
        cudaEventRecord(start, stream);
        for (int i = 0; i < batch; ++i) {
            check(ncclAllReduce(data, data, size / 2, ncclBfloat16, ncclSum, comm, stream) ==
                      ncclSuccess,
                  "ncclAllReduce");
        }
        cudaEventRecord(stop, stream);
        check(cudaEventSynchronize(stop) == cudaSuccess, "cudaEventSynchronize");
        float ms = 0;
        cudaEventElapsedTime(&ms, start, stop);
        double us = 1e3 * ms / batch;
        MPI_Allreduce(MPI_IN_PLACE, &us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (rank == 0 && b >= 0) std::printf("%.4f\n", us);
    }
    ncclCommDestroy(comm);
    MPI_Finalize();
    return 0;
}
