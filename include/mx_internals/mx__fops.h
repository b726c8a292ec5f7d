/*
 * mx_internals/mx__fops.h - configure scripts look here for mx_open_board, which is in mx_io.h.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef MX__FOPS_H
#define MX__FOPS_H

#include "../mx_io.h"

#endif /* MX__FOPS_H */
