# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Open MPI on one machine, as what starts ranks and nothing more. Who sources this sets `scratch`, a folder.
# shellcheck disable=SC2034,SC2054 # who sources this uses what it sets; commas are Open MPI's

# Root may, as in a container; more ranks than processors may. Its own messages stay in this machine's memory:
# what it has for RDMA devices would only try those that the programs under test are about. Its files are in the
# folder, where those of a killed rank do not stay.
mpirun=(
    env "TMPDIR=${scratch:?}" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader OMPI_MCA_osc=^ucx
    OMPI_MCA_oob_tcp_if_include=lo "OMPI_MCA_btl_vader_backing_directory=$scratch" mpirun
)
