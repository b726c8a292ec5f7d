/*
 * mx_io.h - properties of a board and its network, for some MPI libraries.
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

/* A board, as returned by mx_open_board. */
typedef int mx_endpt_handle_t;

/* Type of a host. */
typedef uint32_t mx_host_type_t;

/* State of the network's mapper. */
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

/* Opens the board with that number, which need not be closed. MX_BOARD_UNKNOWN. */
mx_return_t mx_open_board(int i, mx_endpt_handle_t *handle);

/*
 * Returns the network's state, which is all zeros except `board_number`: two hosts with one
 * `mapper_mac` can reach each other, and here all of them can. MX_BOARD_UNKNOWN.
 */
mx_return_t mx__get_mapper_state(mx_endpt_handle_t handle, mx_mapper_state_t *state);

#ifdef __cplusplus
}
#endif

#endif /* MX_IO_H */
