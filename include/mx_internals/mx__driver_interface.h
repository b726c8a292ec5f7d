/*
 * mx_internals/mx__driver_interface.h - configure scripts look here for mx__get_mapper_state and
 * mx_mapper_state_t, which are in mx_io.h.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef MX__DRIVER_INTERFACE_H
#define MX__DRIVER_INTERFACE_H

#include "../mx_io.h"

#endif /* MX__DRIVER_INTERFACE_H */
