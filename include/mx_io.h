/*
 * mx_io.h - what some MPI libraries ask MX of a board and its network.
 *
 * There is no mapper here, so the state of the network is all zeros.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef MX_IO_H
#define MX_IO_H

#include "myriexpress.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A board, as mx_open_board gave it. */
typedef int mx_endpt_handle_t;

/* The kind of a host. */
typedef uint32_t mx_host_type_t;

/* The results of the network's mapper. */
typedef struct {
    uint32_t board_number;
    uint8_t mapper_mac[6];
    uint16_t iport;
    uint32_t map_version;
    uint32_t num_hosts;
    uint32_t network_configured;
    uint32_t routes_valid;
    uint32_t level;
    uint32_t flags;
} mx_mapper_state_t;

/* The board with that number. Nothing has to be closed. MX_BOARD_UNKNOWN. */
mx_return_t mx_open_board(int i, mx_endpt_handle_t *handle);

/*
 * The network's state, which is all zeros but for `board_number`: two hosts of one `mapper_mac` can
 * reach each other, and here all of them are. MX_BOARD_UNKNOWN.
 */
mx_return_t mx__get_mapper_state(mx_endpt_handle_t handle, mx_mapper_state_t *state);

#ifdef __cplusplus
}
#endif

#endif /* MX_IO_H */
