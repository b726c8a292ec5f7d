#include "serve.h"

#include "plan.h"

#include <mx_extensions.h>
#include <stdio.h>

/* Limits for what a stranger makes this process allocate. */
#define SIZE_LIMIT (1024u << 20)
#define WINDOW_LIMIT 1024u

/* The client being served. Static, because operations may be under way after an error. */
struct client {
    struct link *link;
    mx_endpoint_addr_t peer;
    /* Session of the process that has that endpoint. */
    uint32_t session;
    struct plan plan;
    struct ring ring;
    /* Send of an echo, beside the ring's receives. */
    mx_request_t echo;
    struct answer answer;
    mx_request_t answering;
};

static const char *answer(struct client *client, uint32_t refused, uint32_t bad)
{
    const char *error;

    client->answer = answer_wire((struct answer){PLAN_MAGIC, refused, bad});
    error = link_post_send(client->link, &client->answer, sizeof(client->answer), client->peer,
                           MATCH_ANSWER | client->plan.id, &client->answering);
    return error != NULL ? error
                         : link_finish(client->link, &client->answering, sizeof(client->answer));
}

static const char *post(struct client *client, uint32_t n)
{
    return link_post_recv(client->link, ring_data(&client->ring, n), client->plan.size,
                          MATCH_DATA | client->plan.id, ring_request(&client->ring, n));
}

/* Sends every message back. Before that it posts the next receive, into the other buffer. It waits for the send,
 * since a large one notices at once that the client is gone.
 */
static const char *echo(struct client *client)
{
    const struct plan *plan = &client->plan;
    const char *error;
    uint32_t n;

    if ((error = post(client, 0)) != NULL || (error = answer(client, 0, 0)) != NULL)
        return error;
    for (n = 0; n < plan->count && error == NULL; n++) {
        error = link_finish(client->link, ring_request(&client->ring, n), plan->size);
        if (error == NULL && n + 1 < plan->count)
            error = post(client, n + 1);
        if (error == NULL)
            error = link_post_send(client->link, ring_data(&client->ring, n), plan->size,
                                   client->peer, MATCH_DATA | plan->id, &client->echo);
        if (error == NULL)
            error = link_finish(client->link, &client->echo, plan->size);
    }
    return error;
}

/* Receives every message, and answers when all have arrived. */
static const char *sink(struct client *client)
{
    const struct plan *plan = &client->plan;
    uint32_t bad = 0, posted = 0, n;
    const char *error;

    for (; posted < plan->count && posted < client->ring.slots; posted++)
        if ((error = post(client, posted)) != NULL)
            return error;
    if ((error = answer(client, 0, 0)) != NULL)
        return error;
    for (n = 0; n < plan->count; n++) {
        error = link_finish(client->link, ring_request(&client->ring, n), plan->size);
        if (error != NULL)
            return error;
        if (plan->verify && !plan_intact(ring_data(&client->ring, n), plan->size, n))
            bad++;
        if (posted < plan->count && (error = post(client, posted++)) != NULL)
            return error;
    }
    return answer(client, 0, bad);
}

/* Tells whether a stranger may ask for this. */
static int acceptable(const struct plan *plan)
{
    return plan->size <= SIZE_LIMIT && plan->count > 0 && plan->window > 0 &&
           plan->window <= WINDOW_LIMIT;
}

/* Returns the session of the process that has the client's endpoint now, or 0. */
static uint32_t session(const struct client *client)
{
    uint64_t nic_id;
    uint32_t id, session = 0;

    return mx_decompose_endpoint_addr2(client->peer, &nic_id, &id, &session) == MX_SUCCESS ? session
                                                                                           : 0;
}

/* Cancels everything under way. Returns 0 if the buffers must stay. */
static int give_up(struct client *client)
{
    uint32_t n;
    int free;

    /* Only a silent client has sends that would never end. The address stands for its endpoint: if the client is
     * gone, a successor may have it already.
     */
    if (client->link->timed_out && session(client) == client->session)
        mx_disconnect(client->link->endpoint, client->peer);
    free = link_give_up(client->link, &client->echo);
    free &= link_give_up(client->link, &client->answering);
    for (n = 0; n < client->ring.slots; n++)
        free &= link_give_up(client->link, ring_request(&client->ring, n));
    return free;
}

/* Carries out the plan. */
static const char *run(struct client *client)
{
    const struct plan *plan = &client->plan;
    uint32_t slots = plan->kind == PLAN_PING ? 2 : plan_buffers(plan->size, plan->window);
    const char *error;
    int free = 1;

    client->link->sleep = plan->sleep != 0;
    client->link->timed_out = 0;
    if (!acceptable(plan) || !ring_make(&client->ring, slots, plan->size))
        error = answer(client, 1, 0);
    else
        error = plan->kind == PLAN_PING ? echo(client) : sink(client);
    if (error != NULL)
        free = give_up(client);
    if (free)
        ring_free(&client->ring);
    return error;
}

const char *serve(struct link *link, const struct options *options)
{
    static struct client client;
    /* The first plan may come at any time. */
    uint32_t wait_ms = MX_INFINITE;

    /* With one client no other one waits. */
    link->timeout_ms = options->self ? WAIT_IN_LINE_MS : WAIT_SERVING_MS;
    for (;;) {
        mx_segment_t segment = {&client.plan, sizeof(client.plan)};
        mx_request_t request;
        mx_status_t status;
        mx_return_t code;
        uint32_t done = 0;
        const char *error = NULL;

        client = (struct client){.link = link};
        code = mx_irecv(link->endpoint, &segment, 1, MATCH_PLAN, MX_MATCH_MASK_NONE, NULL,
                        &request);
        if (code == MX_SUCCESS)
            code = mx_wait(link->endpoint, &request, wait_ms, &status, &done);
        if (code != MX_SUCCESS)
            return link_reason(code);
        if (!done)
            return "the client has said nothing for a minute";
        client.plan = plan_wire(client.plan);
        client.peer = status.source;
        client.session = session(&client);
        if (status.code != MX_STATUS_SUCCESS || status.xfer_length != sizeof(client.plan) ||
            client.plan.magic != PLAN_MAGIC)
            error = "a message that is no plan";
        else if (client.plan.kind == PLAN_QUIT && !options->keep)
            return NULL;
        else if (client.plan.kind == PLAN_PING || client.plan.kind == PLAN_STREAM) {
            error = run(&client);
            if (!options->keep && error != NULL)
                return error;
            if (!options->keep)
                wait_ms = WAIT_IN_LINE_MS;
        }
        if (error != NULL)
            fprintf(stderr, "%s: a client failed: %s\n", options->program->name, error);
    }
}
