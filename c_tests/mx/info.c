/*
 * mx_get_info with every key, boards, and the texts of codes. myriexpress/tests/arguments.rs has the wrong
 * arguments.
 */
#include "support/party.h"

#include "mx_io.h"

static const mx_get_info_key_t numbers[] = {
    MX_NIC_COUNT,      MX_MAX_NATIVE_ENDPOINTS, MX_NATIVE_REQUESTS, MX_COUNTERS_COUNT,
    MX_SERIAL_NUMBER,  MX_PORT_COUNT,           MX_PIO_SEND_MAX,    MX_COPY_SEND_MAX,
    MX_NUMA_NODE,      MX_NET_TYPE,             MX_LINE_SPEED,
};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

static uint32_t number(mx_endpoint_t ep, mx_get_info_key_t key)
{
    uint32_t value = 0xabababab;

    OK(mx_get_info(ep, key, NULL, 0, &value, sizeof value));
    return value;
}

static void every_key_answers(struct side *side)
{
    mx_endpoint_t ep = party_open();
    uint32_t boards = number(NULL, MX_NIC_COUNT);
    uint64_t *nics = calloc(boards + 1, sizeof *nics), nic;
    char text[MX_MAX_STR_LEN];

    CHECK_THAT(boards, >=, 1);
    for (int i = 0; i < NUMBERS; i++)
        CHECK_THAT(number(ep, numbers[i]), ==, number(NULL, numbers[i]));
    /* Every provider of libfabric has a limit of its own. */
    if (!port_uses_libfabric())
        CHECK_THAT(number(ep, MX_COPY_SEND_MAX), ==, 32768);
    CHECK_THAT(number(ep, MX_COPY_SEND_MAX), >=, 4096);
    CHECK_THAT(number(ep, MX_COPY_SEND_MAX), <=, 32768);
    CHECK_THAT(number(ep, MX_PIO_SEND_MAX), <=, number(ep, MX_COPY_SEND_MAX));
    CHECK_THAT(number(ep, MX_MAX_NATIVE_ENDPOINTS), >=, 24);
    CHECK_THAT(number(ep, MX_NATIVE_REQUESTS), >=, 100000);
    CHECK_THAT(number(ep, MX_PORT_COUNT), >=, 1);
    CHECK_THAT(number(ep, MX_NET_TYPE), <=, MX_NET_ETHER);
    CHECK_THAT(number(ep, MX_LINE_SPEED), <=, MX_SPEED_OPEN_MX);
    /* NIC ids, followed by a zero if there is space. */
    memset(nics, 0xff, (boards + 1) * sizeof *nics);
    OK(mx_get_info(ep, MX_NIC_IDS, NULL, 0, nics, boards * (uint32_t)sizeof *nics));
    CHECK(nics[boards] == UINT64_MAX);
    OK(mx_get_info(NULL, MX_NIC_IDS, NULL, 0, nics, (boards + 1) * (uint32_t)sizeof *nics));
    CHECK_THAT(nics[boards], ==, 0);
    CHECK(nics[0] == local_nic());
    for (uint32_t i = 0; i < boards; i++) {
        uint32_t board = 77, by_number, by_id;
        uint8_t small = (uint8_t)i;

        OK(mx_board_number_to_nic_id(i, &nic));
        CHECK(nic == nics[i]);
        OK(mx_nic_id_to_board_number(nics[i], &board));
        CHECK_THAT(board, ==, i);
        /* A board is named by a number of one or four bytes, or its id. */
        OK(mx_get_info(NULL, MX_SERIAL_NUMBER, &small, 1, &by_number, 4));
        OK(mx_get_info(NULL, MX_SERIAL_NUMBER, &board, 4, &by_id, 4));
        CHECK_THAT(by_number, ==, by_id);
        OK(mx_get_info(NULL, MX_SERIAL_NUMBER, &nics[i], 8, &by_id, 4));
        CHECK_THAT(by_number, ==, by_id);
    }
    for (int key = MX_PRODUCT_CODE; key <= MX_PART_NUMBER; key++) {
        memset(text, 'x', sizeof text);
        OK(mx_get_info(ep, (mx_get_info_key_t)key, NULL, 0, text, sizeof text));
        CHECK(memchr(text, '\0', sizeof text) != NULL && strlen(text) > 0);
    }
    free(nics);
    party_close(ep);
}

/* ---- counters ---- */

static uint32_t *counters(mx_endpoint_t ep, uint32_t count)
{
    uint32_t *values = calloc(count, sizeof *values);

    CHECK(values != NULL);
    OK(mx_get_info(ep, MX_COUNTERS_VALUES, NULL, 0, values, count * (uint32_t)sizeof *values));
    return values;
}

static void counters_count(struct side *side)
{
    enum { MESSAGES = 20 };
    mx_endpoint_t ep = party_open(), idle = open_any();
    uint32_t count = number(NULL, MX_COUNTERS_COUNT), grown = 0, *before, *after, *others;
    char *labels = calloc(count, MX_MAX_STR_LEN);

    CHECK_THAT(count, >, 5);
    OK(mx_get_info(NULL, MX_COUNTERS_LABELS, NULL, 0, labels, count * MX_MAX_STR_LEN));
    for (uint32_t i = 0; i < count; i++) {
        const char *label = labels + i * MX_MAX_STR_LEN;

        CHECK(memchr(label, '\0', MX_MAX_STR_LEN) != NULL && strlen(label) > 0);
        for (uint32_t j = 0; j < i; j++)
            CHECK(strcmp(label, labels + j * MX_MAX_STR_LEN) != 0);
    }
    before = counters(ep, count);
    others = counters(idle, count);
    for (int i = 0; i < MESSAGES; i++)
        exchange(ep, address_of(ep), ep, 1000, (uint64_t)i);
    after = counters(ep, count);
    for (uint32_t i = 0; i < count; i++)
        grown += after[i] >= before[i] + MESSAGES;
    CHECK_THAT(grown, >=, 2); /* messages sent and received */
    free(others);
    others = counters(idle, count); /* another endpoint's counters are not affected */
    for (uint32_t i = 0; i < count; i++)
        if (after[i] >= before[i] + 2 * MESSAGES)
            CHECK_THAT(others[i], <, after[i]);
    free(before);
    free(after);
    free(others);
    free(labels);
    OK(mx_close_endpoint(idle));
    party_close(ep);
}

/* ---- mx_io.h ---- */

static void boards_open(struct side *side)
{
    mx_endpoint_t ep = party_open();
    mx_endpt_handle_t handle = 77;
    mx_mapper_state_t state;

    OK(mx_open_board(0, &handle));
    memset(&state, 0xff, sizeof state);
    OK(mx__get_mapper_state(handle, &state));
    CHECK(state.board_number == 0 && state.flags == 0 && state.mapper_mac[5] == 0);
    party_close(ep);
}

/* ---- texts ---- */

static void codes_have_texts(struct side *side)
{
    static const int nonsense[] = {44, 1000, -1, 0x7fffffff};

    for (int i = 0; i <= MX_NOT_SUPPORTED_WITH_CONTEXT_ID; i++) {
        const char *text = mx_strerror((mx_return_t)i);

        CHECK(text != NULL && strlen(text) > 0 && strlen(text) < MX_MAX_STR_LEN);
        CHECK(text == mx_strerror((mx_return_t)i)); /* static */
        for (int j = 0; j < i; j++)
            CHECK(strcmp(text, mx_strerror((mx_return_t)j)) != 0);
    }
    for (int i = 0; i <= MX_STATUS_NO_RESOURCES; i++) {
        const char *text = mx_strstatus((mx_status_code_t)i);

        CHECK(text != NULL && strlen(text) > 0 && strlen(text) < MX_MAX_STR_LEN);
        for (int j = 0; j < i; j++)
            CHECK(strcmp(text, mx_strstatus((mx_status_code_t)j)) != 0);
    }
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        CHECK(strlen(mx_strerror((mx_return_t)nonsense[i])) > 0);
        CHECK(strlen(mx_strstatus((mx_status_code_t)nonsense[i])) > 0);
    }
}

PARTY_TESTS(
    SOLO(every_key_has_an_answer, every_key_answers),
    SOLO(counters_have_names_and_count, counters_count),
    SOLO(a_board_can_be_opened_and_has_a_mapper, boards_open),
    SOLO(every_code_has_a_text_of_its_own, codes_have_texts))
