#include "couple.h"

mx_endpoint_t a, b;
mx_endpoint_addr_t to_b;

void open_two(void)
{
    a = party_open();
    b = open_any();
    to_b = connect_to(a, id_of(b));
}

void close_two(void)
{
    OK(mx_close_endpoint(b));
    party_close(a);
}
