// SPDX-License-Identifier: BSD-3-Clause
// A library that a program loads after this library has looked for it, as libibverbs loads libmlx5
// with the first mlx5 device.

extern "C" void* mlx5dv_reg_dmabuf_mr() {
    return nullptr;
}
