// SPDX-License-Identifier: BSD-3-Clause
// The public headers compile with the headers of rdma-core 35, which are imitated by hiding the
// names of newer ones. Only the function that needs such a name is missing then.
#define ibv_wr_atomic_write hidden_ibv_wr_atomic_write
#define wr_atomic_write hidden_wr_atomic_write
#define IBV_QP_EX_WITH_ATOMIC_WRITE HIDDEN_IBV_QP_EX_WITH_ATOMIC_WRITE
#define IBV_WR_ATOMIC_WRITE HIDDEN_IBV_WR_ATOMIC_WRITE
#define IBV_WC_ATOMIC_WRITE HIDDEN_IBV_WC_ATOMIC_WRITE
#define ibv_query_qp_data_in_order hidden_ibv_query_qp_data_in_order
#define ibv_wr_flush hidden_ibv_wr_flush
#define wr_flush hidden_wr_flush
#define IBV_QP_EX_WITH_FLUSH HIDDEN_IBV_QP_EX_WITH_FLUSH
#define IBV_WR_FLUSH HIDDEN_IBV_WR_FLUSH
#define IBV_WC_FLUSH HIDDEN_IBV_WC_FLUSH
#define IBV_ACCESS_FLUSH_GLOBAL HIDDEN_IBV_ACCESS_FLUSH_GLOBAL
#define IBV_ACCESS_FLUSH_PERSISTENT HIDDEN_IBV_ACCESS_FLUSH_PERSISTENT
#define active_speed_ex hidden_active_speed_ex
#include <infiniband/verbs.h>
#undef ibv_wr_atomic_write
#undef wr_atomic_write
#undef IBV_QP_EX_WITH_ATOMIC_WRITE
#undef IBV_WR_ATOMIC_WRITE
#undef IBV_WC_ATOMIC_WRITE
#undef ibv_query_qp_data_in_order
#undef ibv_wr_flush
#undef wr_flush
#undef IBV_QP_EX_WITH_FLUSH
#undef IBV_WR_FLUSH
#undef IBV_WC_FLUSH
#undef IBV_ACCESS_FLUSH_GLOBAL
#undef IBV_ACCESS_FLUSH_PERSISTENT
#undef active_speed_ex

#include <rdmabuf/rdmabuf.hpp>
#include <rdmabuf/transport.hpp>
#include <rdmabuf/work_batch.hpp>

void add(rdmabuf::WorkBatch& batch, rdmabuf::RemoteAddress remote) {
#ifdef MUST_COMPILE
    batch.write({}, remote);
#else
    batch.atomic_write(1, remote);
#endif
}
