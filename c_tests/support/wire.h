/*
 * Strangers: plain sockets that talk to a server without the library.
 *
 *     director ──connect──► TCP port of the server        (endpoint >= 1024: its own number)
 *              ──connect──► abstract Unix socket          (found in /proc by the server's pid)
 *
 * A real client's opening is not written down here but recorded, by listening on a TCP port that a real client
 * calls (strangers.c). Packets behind it are built from docs/wire-format.md: a 32-byte header and a body.
 *
 * Owns: file descriptors it returns, until the caller closes them. Knows nothing of: the library, BMI.
 */
#ifndef C_TESTS_WIRE_H
#define C_TESTS_WIRE_H

#include "check.h"

#include <sys/types.h>

enum wire_door { DOOR_TCP, DOOR_LOCAL };

/* Returns a connected socket, or -1 if no socket listens there. For DOOR_LOCAL it connects to the first listening
 * abstract socket of that process. */
int wire_connect(enum wire_door door, pid_t server, int endpoint);
/* Returns a socket of that type (SOCK_*) from 127.0.0.0 + source to 127.0.0.1, or -1 if no socket listens there;
 * with SOCK_NONBLOCK it may still be connecting. */
int wire_dial_from(unsigned source, int type, int endpoint);
/* Copies the name of that socket without its leading NUL; false if there is none. *type is SOCK_*. */
bool wire_local_name(pid_t pid, char name[108], size_t *length, int *type);

/* Returns whether the process has this socket open. */
bool wire_holds(pid_t pid, unsigned long inode);
/* Returns the inode of the socket that listens on that TCP port, of IPv4 or IPv6. */
unsigned long wire_listener_inode(int port);

/* Opens a listening TCP socket on 127.0.0.1, at *port or any port. */
int wire_listen(int *port);
/* Opens a listening TCP socket on 127.0.0.1, at *port, or at any free port for 0, which is then stored there. */
int wire_listen_local(const char *name, size_t length, int type);
/* Accepts the next connection, before the deadline. */
int wire_accept(int listener, int ms);

/* Writes all bytes; false if the other side has closed the connection. */
bool wire_say(int fd, const void *bytes, size_t size);
/* Reads until `size` bytes have come, the connection ends, or the time is over; returns the number of bytes. */
size_t wire_hear(int fd, void *bytes, size_t size, int ms);

/* Writes a little-endian number of that many bytes. */
void wire_put(unsigned char *at, uint64_t value, int bytes);

/* A packet: header and body in one buffer; wire_packet() returns its length. */
struct packet {
    unsigned char kind;
    uint64_t word;
    uint32_t length, status, credit, slots_and_wanted;
    uint32_t body_length; /* as the header announces it */
};
enum { WIRE_HEADER = 32, WIRE_PREAMBLE = 8, WIRE_HELLO = 64 };
size_t wire_packet(unsigned char *out, const struct packet *packet, const void *body,
                   size_t body_size);

/* Fills in pseudo-random bytes, a function of the seed. */
void wire_noise(unsigned char *bytes, size_t size, unsigned seed);

#endif
