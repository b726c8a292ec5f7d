/*
 * Datagrams of docs/dgram.md, built and sent without the library.
 *
 * Owns nothing. Knows nothing of: sessions, packets.
 */
#ifndef C_TESTS_DATAGRAM_H
#define C_TESTS_DATAGRAM_H

#include "wire.h"

enum {
    DATAGRAM_HEADER = 64,
    DATAGRAM_GREETING = 65, /* payload of a Hello */
    DATAGRAM_VERSION = 3,
    DATAGRAM_HELLO = 1,
    DATAGRAM_WELCOME = 2,
    DATAGRAM_DATA = 3,
    DATAGRAM_ACK = 4,
    DATAGRAM_PING = 5,
    DATAGRAM_RESET = 6,
    FLAG_SUMMED = 4,
    FLAG_OPENING = 8,
    /* Offsets of the fields. */
    AT_VERSION = 2,
    AT_KIND = 3,
    AT_SUM = 4,
    AT_TO = 8,
    AT_FROM = 16,
    AT_NUMBER = 24,
    AT_WANTED = 28,
    AT_FIRST_OF_CALLER = 32,
    AT_WINDOW = 40,
    AT_FLAGS = 44,
    AT_PAYLOAD = 46,
    AT_PACKET = 48,
    AT_OFFSET = 52,
    AT_WHOLE = 56,
    AT_PAYLOAD_SUM = 60,
};

/* Begins a header: magic, version, kind and cookies. */
void datagram_head(unsigned char *out, int kind, uint64_t to, uint64_t from);
/* Makes a Hello of that caller with that first number. */
void datagram_hello(unsigned char out[DATAGRAM_HEADER + DATAGRAM_GREETING], uint64_t caller, uint32_t first);
uint32_t crc32c(const unsigned char *bytes, size_t size);
/* Puts the header's checksum in place and sends the datagram. */
void datagram_say(int fd, unsigned char *datagram, size_t size);

#endif
