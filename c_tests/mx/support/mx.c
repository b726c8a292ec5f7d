/* See mx.h. */
#include "mx.h"

_Thread_local struct errors errors;

static const char *const returns[] = {
#define NAMED(code) [code] = #code
    NAMED(MX_SUCCESS),           NAMED(MX_BAD_BAD_BAD),        NAMED(MX_FAILURE),
    NAMED(MX_ALREADY_INITIALIZED), NAMED(MX_NOT_INITIALIZED),  NAMED(MX_NO_DEV),
    NAMED(MX_NO_DRIVER),         NAMED(MX_NO_PERM),            NAMED(MX_BOARD_UNKNOWN),
    NAMED(MX_BAD_ENDPOINT),      NAMED(MX_BAD_SEG_LIST),       NAMED(MX_BAD_SEG_MEM),
    NAMED(MX_BAD_SEG_CNT),       NAMED(MX_BAD_REQUEST),        NAMED(MX_BAD_MATCH_MASK),
    NAMED(MX_NO_RESOURCES),      NAMED(MX_BAD_ADDR_LIST),      NAMED(MX_BAD_ADDR_COUNT),
    NAMED(MX_BAD_ROOT),          NAMED(MX_NOT_COMPLETED),      NAMED(MX_BUSY),
    NAMED(MX_BAD_INFO_KEY),      NAMED(MX_BAD_INFO_VAL),       NAMED(MX_BAD_NIC),
    NAMED(MX_BAD_PARAM_LIST),    NAMED(MX_BAD_PARAM_NAME),     NAMED(MX_BAD_PARAM_VAL),
    NAMED(MX_BAD_HOSTNAME_ARGS), NAMED(MX_HOST_NOT_FOUND),     NAMED(MX_REQUEST_PENDING),
    NAMED(MX_TIMEOUT),           NAMED(MX_NO_MATCH),           NAMED(MX_BAD_ENDPOINT_ID),
    NAMED(MX_CONNECTION_FAILED), NAMED(MX_BAD_CONNECTION_KEY), NAMED(MX_BAD_INFO_LENGTH),
    NAMED(MX_NIC_NOT_FOUND),     NAMED(MX_BAD_KERNEL_VERSION), NAMED(MX_BAD_LIB_VERSION),
    NAMED(MX_NIC_DEAD),          NAMED(MX_CANCEL_NOT_SUPPORTED), NAMED(MX_CLOSE_IN_HANDLER),
    NAMED(MX_BAD_MATCHING_FOR_CONTEXT_ID_MASK),
    NAMED(MX_NOT_SUPPORTED_WITH_CONTEXT_ID),
};

static const char *const statuses[] = {
    NAMED(MX_STATUS_SUCCESS),         NAMED(MX_STATUS_PENDING),
    NAMED(MX_STATUS_BUFFERED),        NAMED(MX_STATUS_REJECTED),
    NAMED(MX_STATUS_TIMEOUT),         NAMED(MX_STATUS_TRUNCATED),
    NAMED(MX_STATUS_CANCELLED),       NAMED(MX_STATUS_ENDPOINT_UNKNOWN),
    NAMED(MX_STATUS_ENDPOINT_CLOSED), NAMED(MX_STATUS_ENDPOINT_UNREACHABLE),
    NAMED(MX_STATUS_BAD_SESSION),     NAMED(MX_STATUS_BAD_KEY),
    NAMED(MX_STATUS_BAD_ENDPOINT),    NAMED(MX_STATUS_BAD_RDMAWIN),
    NAMED(MX_STATUS_ABORTED),         NAMED(MX_STATUS_EVENTQ_FULL),
    NAMED(MX_STATUS_NO_RESOURCES),
#undef NAMED
};

static const char *name_of(const char *const *names, size_t count, long long code)
{
    static _Thread_local char numbers[2][32];
    static _Thread_local int turn; /* one message may contain two */

    if (code >= 0 && (size_t)code < count && names[code] != NULL)
        return names[code];
    turn = 1 - turn;
    snprintf(numbers[turn], sizeof numbers[turn], "%lld", code);
    return numbers[turn];
}

const char *return_text(mx_return_t code)
{
    return name_of(returns, sizeof returns / sizeof returns[0], (long long)code);
}

const char *status_text(mx_status_code_t code)
{
    return name_of(statuses, sizeof statuses / sizeof statuses[0], (long long)code);
}

/* CHECK_THAT of check.h compares sizes and numbers in this suite: codes have macros of their own. */
const char *code_text(long long code)
{
    return name_of(NULL, 0, code);
}

mx_return_t note_error(char *text, mx_return_t code)
{
    errors.count++;
    errors.code = code;
    snprintf(errors.text, sizeof errors.text, "%s", text != NULL ? text : "(no text)");
    return code;
}

void errors_begin(void)
{
    errors.count = 0;
    errors.code = MX_SUCCESS;
    errors.text[0] = '\0';
}

static void check_refused(const char *file, int line, const char *call, mx_return_t got)
{
    if (got == MX_SUCCESS)
        check_failed(file, line, "%s: was not refused", call);
    if (errors.count != 1)
        check_failed(file, line, "%s: %s, and the error handler was called %d times", call,
                     return_text(got), errors.count);
    if (errors.code != got)
        check_failed(file, line, "%s: %s, and the error handler was told %s", call,
                     return_text(got), return_text(errors.code));
    if (errors.text[0] == '\0')
        check_failed(file, line, "%s: the error handler got no text", call);
}

void check_return(const char *file, int line, const char *call, mx_return_t got,
                  mx_return_t wanted)
{
    if (got != wanted)
        check_failed(file, line, "%s: %s, not %s (%s)", call, return_text(got),
                     return_text(wanted), errors.text);
    if (wanted == MX_SUCCESS) {
        if (errors.count != 0)
            check_failed(file, line, "%s: succeeded, and the error handler was told '%s'", call,
                         errors.text);
        return;
    }
    check_refused(file, line, call, got);
}

void check_status(const char *file, int line, const mx_status_t *status,
                  mx_status_code_t wanted)
{
    if (status->code != wanted)
        check_failed(file, line, "status %s, not %s (bits 0x%llx, %u of %u bytes)",
                     status_text(status->code), status_text(wanted),
                     (unsigned long long)status->match_info, status->xfer_length,
                     status->msg_length);
}
