/* See datagram.h. */
#include "datagram.h"

#include <sys/socket.h>

uint32_t crc32c(const unsigned char *bytes, size_t size)
{
    uint32_t sum = ~UINT32_C(0);

    for (size_t i = 0; i < size; i++) {
        sum ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? UINT32_C(0x82f63b78) : 0);
    }
    return ~sum;
}

void datagram_head(unsigned char *out, int kind, uint64_t to, uint64_t from)
{
    memset(out, 0, DATAGRAM_HEADER);
    memcpy(out, "mR", 2);
    out[AT_VERSION] = DATAGRAM_VERSION;
    out[AT_KIND] = (unsigned char)kind;
    wire_put(out + AT_TO, to, 8);
    wire_put(out + AT_FROM, from, 8);
}

void datagram_hello(unsigned char out[DATAGRAM_HEADER + DATAGRAM_GREETING], uint64_t caller, uint32_t first)
{
    memset(out, 0, DATAGRAM_HEADER + DATAGRAM_GREETING);
    datagram_head(out, DATAGRAM_HELLO, 0, caller);
    wire_put(out + AT_NUMBER, first, 4);
    wire_put(out + AT_PAYLOAD, DATAGRAM_GREETING, 2);
}

void datagram_say(int fd, unsigned char *datagram, size_t size)
{
    wire_put(datagram + AT_SUM, 0, 4);
    wire_put(datagram + AT_SUM, crc32c(datagram, DATAGRAM_HEADER), 4);
    /* ECONNREFUSED reports an earlier datagram. */
    (void)!send(fd, datagram, size, MSG_NOSIGNAL);
}
