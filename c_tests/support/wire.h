/*
 * Strangers: plain sockets that speak to a server without the library.
 *
 *     director ──connect──► TCP port of the server        (endpoint >= 1024: its own number)
 *              ──connect──► abstract Unix socket          (found in /proc by the server's pid)
 *
 * A real client's opening is not written down here but recorded, by listening on a TCP
 * port and letting a real client dial it (strangers.c). Packets behind that are made from
 * docs/wire-format.md: a 32-byte header and a body.
 *
 * Owns: file descriptors it returns, until the caller closes them.
 * Knows nothing of: the library, BMI.
 */
#ifndef C_TESTS_WIRE_H
#define C_TESTS_WIRE_H

#include "check.h"

#include <sys/types.h>

enum wire_door { DOOR_TCP, DOOR_LOCAL };

/* A connected socket, or -1 when no socket listens there. For DOOR_LOCAL the first listening
* abstract socket of that process. */
int wire_connect(enum wire_door door, pid_t server, int endpoint);
/* A socket of that type (SOCK_*) from 127.0.0.0 + source to 127.0.0.1, or -1 when no socket listens there;
 * with SOCK_NONBLOCK it may still be connecting. */
int wire_dial_from(unsigned source, int type, int endpoint);
/* Name of that socket without its leading NUL; false when there is none. *type is SOCK_*. */
bool wire_local_name(pid_t pid, char name[108], size_t *length, int *type);

/* The inode of the socket that listens on that TCP port, of IPv4 or IPv6. */
unsigned long wire_listener_inode(int port);

/* A listening TCP socket on 127.0.0.1 and its port. */
int wire_listen(int *port);
/* A listening abstract Unix socket of that name; -1 when it is taken. */
int wire_listen_local(const char *name, size_t length, int type);
/* The next connection, before the deadline. */
int wire_accept(int listener, int ms);

/* Writes all of it; false when the other side has closed. */
bool wire_say(int fd, const void *bytes, size_t size);
/* Reads until `size` bytes, the end, or the time is over; returns how many. */
size_t wire_hear(int fd, void *bytes, size_t size, int ms);

/* So many bytes of a number, the lowest first. */
void wire_put(unsigned char *at, uint64_t value, int bytes);

/* A packet: header and body in one buffer; returns its length. */
struct packet {
    unsigned char kind;
    uint64_t word;
    uint32_t length, status, credit, slots_and_wanted;
    uint32_t body_length; /* what the header announces */
};
enum { WIRE_HEADER = 32, WIRE_PREAMBLE = 8, WIRE_HELLO = 64 };
size_t wire_packet(unsigned char *out, const struct packet *packet, const void *body,
                   size_t body_size);

/* Bytes that look like nothing in particular, a function of the seed. */
void wire_noise(unsigned char *bytes, size_t size, unsigned seed);

#endif
