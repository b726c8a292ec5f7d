//! The endpoints of this process, for every thread.
//!
//! ```text
//!   any thread --handle--> table of slots --> Shared<Slot> (one lock each) --> Engine
//!                                                 ^
//!                          helper thread ---------'     one per open endpoint
//! ```
//!
//! Every function may be called at any time from any thread, with any handle: a stale or invalid one is rejected. C
//! functions (unexpected handlers) run without a lock.
//!
//! Owns: the table, the start and the end of endpoints (`open`), waiting (`wait`).
//! Out of scope: the protocol, C's pointers, error handlers (only stored).
//! Cost: a call finds its endpoint without a lock and takes one lock.

mod machine;
mod open;
mod table;
mod wait;

pub use crate::engine::{CONTEXT_ID_BITS_MAX, ContextIds, UnexpectedFunction, UnexpectedHandler};
pub use mx_proto::{NicId, SendMode};
pub use mx_sys::UserMemory;
pub use open::{OpenParams, close, close_all, open};

use crate::engine::{COMPLETIONS, UNEXPECTED};
use crate::error::{Code, Error};
use crate::handles::{Address, EndpointHandle, RequestHandle};
use crate::status::{Status, StatusCode};
use machine::HostEngine;
use mx_sys::{nic, published};
use std::time::{Duration, Instant};
use table::{find, held, of_request, with};
use wait::{own_turn, wait, wait_for_handler};

/// Posts a send of all bytes of `memory` to the peer `to`, with match bits `bits`. `context` is returned with the
/// result. With `forget` the result is never reported, and the returned handle is stale.
#[inline]
pub fn isend(
    ep: EndpointHandle,
    memory: UserMemory,
    to: Address,
    bits: u64,
    context: usize,
    mode: SendMode,
    forget: bool,
) -> Result<RequestHandle, Error> {
    post(ep, forget, |engine| {
        engine.isend(memory, to, bits, context, mode)
    })
}

/// Posts a receive into `memory` for the oldest message whose match bits agree with `bits` where `mask` has ones.
/// `context` and `forget` as for [`isend`].
#[inline]
pub fn irecv(
    ep: EndpointHandle,
    memory: UserMemory,
    bits: u64,
    mask: u64,
    context: usize,
    forget: bool,
) -> Result<RequestHandle, Error> {
    post(ep, forget, |engine| {
        engine.irecv(memory, bits, mask, context)
    })
}

/// Posts a connect to the endpoint `to` (NIC id and number) with its key. The result's source is the peer's address,
/// and its match bits are `bits`. `context` and `forget` as for [`isend`].
pub fn iconnect(
    ep: EndpointHandle,
    to: (NicId, u32),
    key: u32,
    bits: u64,
    context: usize,
    forget: bool,
) -> Result<RequestHandle, Error> {
    post(ep, forget, |engine| {
        engine.iconnect(to, key, bits, context, false)
    })
}

#[inline]
fn post(
    ep: EndpointHandle,
    forget: bool,
    request: impl FnOnce(&mut HostEngine) -> Result<RequestHandle, Error>,
) -> Result<RequestHandle, Error> {
    with(ep, |engine| {
        let posted = request(engine)?;
        if forget {
            engine.forget(posted)?;
        }
        Ok(posted)
    })
}

/// Connects to an endpoint with its `key`, waits for its answer, without limit if `timeout` is `None`, and returns the
/// peer's address.
pub fn connect(
    ep: EndpointHandle,
    nic: NicId,
    endpoint: u32,
    key: u32,
    timeout: Option<Duration>,
) -> Result<Address, Error> {
    let begun = Instant::now();
    let request = with(ep, |engine| {
        engine.iconnect((nic, endpoint), key, 0, 0, true)
    })?;
    let answer = wait(ep, COMPLETIONS, timeout, |engine| engine.test(request))?;
    let answer = match answer {
        Some(answer) => Some(answer),
        None => with(ep, |engine| Ok(engine.abandon(request)))?,
    };
    let status = match answer {
        Some(answer) if answer.code == StatusCode::Success as u32 => return Ok(answer.source),
        Some(answer) => StatusCode::of(answer.code).unwrap_or(StatusCode::Aborted),
        None => StatusCode::Timeout,
    };
    let no_answer = format!("no answer for {} ms", begun.elapsed().as_millis());
    let (code, what) = connect_failure(status).unwrap_or((Code::Timeout, &no_answer));
    let what = match nic::mx_name(nic) {
        Some(host) => format!("{host}, endpoint {endpoint}: {what}"),
        None => format!("NIC {:#x}, endpoint {endpoint}: {what}", nic.0),
    };
    Err(Error::new(code, what))
}

/// Returns `mx_connect`'s code for a failed connect, and the reason; `None` after a time-out.
fn connect_failure(status: StatusCode) -> Option<(Code, &'static str)> {
    Some(match status {
        StatusCode::Timeout => return None,
        StatusCode::EndpointClosed => (Code::ConnectionFailed, "no process has that endpoint open"),
        // MX has no other code for this.
        StatusCode::EndpointUnreachable => (Code::Timeout, "no way leads there, or it broke"),
        StatusCode::BadKey => (Code::BadConnectionKey, "the connection key is another one"),
        StatusCode::BadEndpoint | StatusCode::EndpointUnknown => (
            Code::BadEndpointId,
            "the endpoint id is out of range, or its library is another version",
        ),
        StatusCode::NoResources => (Code::NoResources, "there is no room for another connection"),
        StatusCode::Rejected => (Code::NoPerm, "the two sides do not have the same secret"),
        _ => (Code::Failure, "the connect was ended"),
    })
}

/// Returns the result of a completed request, whose handle is then stale; `None` if it has not completed.
#[inline]
pub fn test(ep: EndpointHandle, request: RequestHandle) -> Result<Option<Status>, Error> {
    wait(ep, COMPLETIONS, Some(Duration::ZERO), |engine| {
        engine.test(request)
    })
}

/// Does what [`test()`] does, but waits. `None` after the time-out, or if [`wakeup`] was called.
#[inline]
pub fn wait_for(
    ep: EndpointHandle,
    request: RequestHandle,
    timeout: Option<Duration>,
) -> Result<Option<Status>, Error> {
    let place = find(ep)?;
    // Without context ids all completions have one interest bit.
    let interest = if place.has_context_ids() {
        with(ep, |engine| Ok(engine.interest_of(request)))?
    } else {
        COMPLETIONS
    };
    wait(ep, interest, timeout, |engine| engine.test(request))
}

/// Returns the result of the oldest completed request whose bits agree with `bits` where `mask` has ones, and makes its
/// handle stale; `None` if there is none.
#[inline]
pub fn test_any(ep: EndpointHandle, bits: u64, mask: u64) -> Result<Option<Status>, Error> {
    wait_any(ep, bits, mask, Some(Duration::ZERO))
}

/// Does what [`test_any`] does, but waits. `None` after the time-out, or if [`wakeup`] was called.
#[inline]
pub fn wait_any(
    ep: EndpointHandle,
    bits: u64,
    mask: u64,
    timeout: Option<Duration>,
) -> Result<Option<Status>, Error> {
    let interest = find(ep)?.interest_in(bits, mask);
    wait(ep, interest, timeout, |engine| engine.test_any(bits, mask))
}

/// Returns the handle of the oldest completed request, whose result still has to be taken. Waits for one; `None` after
/// the time-out, or if [`wakeup`] was called.
pub fn peek(ep: EndpointHandle, timeout: Option<Duration>) -> Result<Option<RequestHandle>, Error> {
    wait(ep, COMPLETIONS, timeout, |engine| engine.peek())
}

/// Returns source, match bits and length of the oldest unexpected message that a receive with these bits and mask would
/// take; the message stays. `None` as for [`peek`].
pub fn probe(
    ep: EndpointHandle,
    bits: u64,
    mask: u64,
    timeout: Option<Duration>,
) -> Result<Option<Status>, Error> {
    wait(ep, UNEXPECTED, timeout, |engine| engine.probe(bits, mask))
}

/// Cancels a receive or a connect, which then never completes; its buffer can be reused. Returns false if it is too
/// late and the request has to be tested.
pub fn cancel(ep: EndpointHandle, request: RequestHandle) -> Result<bool, Error> {
    with(ep, |engine| engine.cancel(request))
}

/// Gives up the result of a request: its completion is never reported, and its handle is stale. The operation continues
/// and may use the buffer until it ends.
pub fn forget(ep: EndpointHandle, request: RequestHandle) -> Result<(), Error> {
    with(ep, |engine| engine.forget(request))
}

/// Waits until the program may reuse the memory of a send. Returns false after the time-out, or if [`wakeup`] was
/// called.
pub fn wait_buffered(
    ep: EndpointHandle,
    request: RequestHandle,
    timeout: Option<Duration>,
) -> Result<bool, Error> {
    let buffered = wait(ep, COMPLETIONS, timeout, |engine| {
        Ok(engine.is_buffered(request)?.then_some(()))
    })?;
    Ok(buffered.is_some())
}

/// Returns the context pointer with which a request was posted.
pub fn context_of(request: RequestHandle) -> Result<usize, Error> {
    of_request(request, |engine| engine.context_of(request))
}

/// Disconnects a peer: its operations complete with an error, and its address is invalid from then on.
pub fn disconnect(ep: EndpointHandle, address: Address) -> Result<(), Error> {
    with(ep, |engine| engine.disconnect(address))
}

/// Returns the endpoint's own address; messages to it come back to the endpoint.
pub fn own_address(ep: EndpointHandle) -> Result<Address, Error> {
    with(ep, |engine| Ok(engine.own_address()))
}

/// Attaches a pointer to a peer.
pub fn set_context(address: Address, context: usize) -> Result<(), Error> {
    with(address.endpoint(), |engine| {
        engine.set_peer_context(address, context)
    })
}

/// Returns the pointer attached to a peer, 0 for none.
pub fn context(address: Address) -> Result<usize, Error> {
    with(address.endpoint(), |engine| engine.peer_context(address))
}

/// Returns a peer's NIC id, endpoint id and session. Each opening of an endpoint has another session.
pub fn decompose(address: Address) -> Result<(NicId, u32, u32), Error> {
    let identity = with(address.endpoint(), |engine| engine.decompose(address))?;
    // Half of 64 random bits is as random.
    let session = identity.session.0 as u32;
    Ok((identity.nic, identity.endpoint.0, session))
}

/// Sets the time without progress after which a request completes with an error (`timeout` `None`: no limit): of
/// `request`, or if that is `None` of every request posted from now on. An unmatched receive has no limit.
pub fn set_timeout(
    ep: EndpointHandle,
    request: Option<RequestHandle>,
    timeout: Option<Duration>,
) -> Result<(), Error> {
    with(ep, |engine| match request {
        Some(request) => engine.set_timeout_of(request, timeout),
        None => {
            engine.set_request_timeout(timeout);
            Ok(())
        }
    })
}

/// Sets the handler for unexpected messages, or removes it (`None`). Waits for a call of the previous handler in
/// another thread.
pub fn register_handler(
    ep: EndpointHandle,
    handler: Option<UnexpectedHandler>,
) -> Result<(), Error> {
    with(ep, |engine| {
        engine.set_handler(handler);
        Ok(())
    })?;
    wait_for_handler(ep)
}

/// Polls the endpoint once, without waiting.
pub fn progress(ep: EndpointHandle) -> Result<(), Error> {
    wait(ep, 0, Some(Duration::ZERO), |_: &mut HostEngine| {
        Ok(None::<()>)
    })?;
    Ok(())
}

/// Makes every thread that waits on the endpoint return without a result.
pub fn wakeup(ep: EndpointHandle) -> Result<(), Error> {
    with(ep, |engine| {
        engine.wake_up();
        Ok(())
    })
}

/// Suspends (`on` false) or resumes progress of an endpoint. Suspending waits for a handler that runs in another
/// thread; resuming polls once.
pub fn set_progression(ep: EndpointHandle, on: bool) -> Result<(), Error> {
    with(ep, |engine| {
        engine.set_progression(on);
        Ok(())
    })?;
    if on {
        progress(ep)
    } else {
        wait_for_handler(ep)
    }
}

/// Returns the endpoint's counters, in the order of `mx_sys::published::counters`.
pub fn counters(ep: EndpointHandle) -> Result<Vec<u64>, Error> {
    let place = find(ep)?;
    let waits = place.shared.wait_stats();
    place.opened(ep, |open| published::values(&open.sample(waits)).to_vec())
}

/// Returns the largest message in bytes that an endpoint sends eagerly over each of its ports.
pub fn copy_send_max(ep: EndpointHandle) -> Result<usize, Error> {
    find(ep)?.opened(ep, |open| {
        let ports = open.engine.endpoint().port();
        ports.eager_max().min(open.engine.eager_max())
    })
}

/// Returns the open endpoints of this process.
pub fn open_endpoints() -> Vec<EndpointHandle> {
    table::open_endpoints()
}

/// Returns the number of an endpoint's board.
pub fn board_of(ep: EndpointHandle) -> Result<u32, Error> {
    held(ep)?.opened(ep, |open| open.board)
}

/// Returns the error handler of an endpoint, as [`OpenParams`] has it (0: none); `None` if the endpoint is not open.
pub fn error_handler_of(ep: EndpointHandle) -> Option<usize> {
    let handler = held(ep).and_then(|place| place.opened(ep, |open| open.engine.error_handler()));
    handler.ok()
}

/// Returns whether the calling thread is inside the endpoint's unexpected handler.
pub fn in_handler(ep: EndpointHandle) -> bool {
    own_turn(ep)
}

#[cfg(test)]
mod tests;
