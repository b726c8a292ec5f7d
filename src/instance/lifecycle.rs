//! The start and the end of the method, and its takeover by a child of `fork`.
//!
//! ```text
//!   initialize --> start --> in use --> finalize
//!                             |  fork
//!                             v
//!                        inherited --open_anew------> in use, over the child's own ports
//!                             `------drop_inherited-> not initialized
//! ```
//!
//! A lock of the instance makes threads start and end the method one at a time.
//!
//! Out of scope: calls of the running method.

use super::life::{HostMethod, HostSlot, Running};
use super::{Instance, NOTIFYING, existing_instance, get_or_create, not_initialized};
use crate::abi::constants::{BMI_EALREADY, BMI_INIT_SERVER, BMI_TCP_BIND_SPECIFIC};
use crate::abi::types::bmi_method_addr;
use crate::address;
use crate::config::Config;
use crate::error::Error;
use crate::host;
use crate::match_layout::KEY;
use crate::method::{Host, Method, Settings};
use crate::peer_name::PeerName;
use mx_proto::port::{LinkControl, WakeDescriptors};
use mx_proto::{Endpoint, EndpointId, Identity, NicId, Route};
use mx_sys::slot::{Open, SlotError};
use mx_sys::thread::PROGRESS_STACK;
use mx_sys::{EndpointChoice, HostPorts, MonotonicClock, OpenError, OpenOptions, ReopenOptions};
use mx_sys::{Shared, limits, linger, nic, reserve};
use std::io;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Time that `finalize` waits for threads inside a host function.
const LINGER: Duration = Duration::from_secs(1);

/// Starts the method. See `BMI_mx_initialize`.
pub fn initialize(
    listen: Option<NonNull<bmi_method_addr>>,
    method_id: i32,
    flags: i32,
    options: Option<&str>,
) -> Result<(), Box<Error>> {
    let instance = get_or_create().map_err(no_descriptors)?;
    let _one_at_a_time = instance.lifecycle.lock();
    if instance.shared.is_mine() && instance.shared.lock().open().is_some() {
        return Err(Error::new(BMI_EALREADY, "initialized already"));
    }
    let server = flags & BMI_INIT_SERVER != 0;
    if server != listen.is_some() {
        return Err(Error::invalid(if server {
            format!("server flag in {flags:#x} without a listen address")
        } else {
            format!("listen address without the server flag in {flags:#x}")
        }));
    }
    let listen = match listen {
        None => None,
        Some(addr) => {
            let name = address::name(addr.as_ptr());
            let name = name.ok_or_else(|| Error::unknown_address(addr.as_ptr()))?;
            Some(Listen { addr, name })
        }
    };
    // A child of fork opens an endpoint of its own and drops the inherited one.
    if !instance.shared.is_mine() {
        instance.shared.lock().drop_inherited(&instance.shared);
    }
    reserve::fill();
    let specific = flags & BMI_TCP_BIND_SPECIFIC != 0;
    start(&instance.shared, listen, specific, method_id, options).inspect_err(|_| {
        reserve::empty();
        instance.shared.end();
    })
}

/// The address object that a server listens on.
struct Listen {
    addr: NonNull<bmi_method_addr>,
    name: Arc<PeerName>,
}

impl Listen {
    fn nic(&self) -> Option<NicId> {
        address::nic(self.addr.as_ptr())
    }
}

fn start(
    shared: &Arc<Shared<HostSlot>>,
    listen: Option<Listen>,
    specific: bool,
    method_id: i32,
    options: Option<&str>,
) -> Result<(), Box<Error>> {
    let (config, refused) = Config::load(options);
    config.check(&refused)?;
    nic::set_peers_file(config.mx.peers.clone());
    let name = listen.as_ref().map(|listen| &*listen.name);
    let mut options = open_options(listen.as_ref(), &config);
    if let Some(listen) = &listen
        && !specific
    {
        warn_of_another_machine(listen);
    }
    let opened = name.filter(|_| specific).map_or(Ok(None), |name| {
        let only = nic::listen_address(&name.host, name.board);
        only.map(Some).map_err(OpenError::Board)
    });
    let opened = opened.and_then(|tcp_bind| {
        options.tcp_bind = tcp_bind;
        HostPorts::open(options.clone())
    });
    let (ports, identity) = opened.map_err(|reason| {
        let name = name.map_or_else(|| "an endpoint".to_owned(), PeerName::to_string);
        Error::open(&name, &reason)
    })?;
    let own = own_name(options.board, identity);
    // Clients know a server by its number.
    let again = match listen {
        Some(_) => EndpointChoice::Exact(identity.endpoint),
        None => EndpointChoice::Any,
    };
    let opened = ReopenOptions::new(options, again, config.mx.tuning(), config.mx.helper);
    let endpoint_config = ports.endpoint_config(&config.mx.endpoint);
    let endpoint_config = endpoint_config.map_err(|error| no_endpoint(SlotError::Random(error)))?;
    let settings = Settings::from(&config);
    let mut method = build(settings, own.to_string(), endpoint_config, identity, ports);
    address::begin(method_id);
    if let Some(Listen { addr, name }) = &listen {
        // Whatever the host in its name resolves to, the address is this endpoint's.
        address::set_nic(addr.as_ptr(), identity.nic);
        method.attach(addr.as_ptr(), name, &[identity.nic], false)?;
    }
    shared.retune(opened.tuning).map_err(no_descriptors)?;
    let open = Open::new(method, opened, shared).map_err(no_endpoint)?;
    log::info!("{own} is open, session {:#x}", identity.session.0);
    let mut slot = shared.lock();
    slot.persistent.listen = listen.map(|listen| {
        let endpoint = Some(identity.endpoint.0);
        let name = (*listen.name).clone();
        (PeerName { endpoint, ..name }, identity.nic)
    });
    slot.persistent.shutdown = config.shutdown;
    slot.put(open);
    Ok(())
}

/// Makes the method over these ports. Not inlined: the values moved here take several copies on the stack.
#[inline(never)]
fn build(
    settings: Settings,
    name: String,
    config: mx_proto::Config,
    identity: Identity,
    ports: Box<HostPorts>,
) -> Box<HostMethod> {
    let host = Host::new(&settings);
    let endpoint = Endpoint::new(config, identity, KEY, *ports, MonotonicClock, host);
    Box::new(Method::new(settings, name, endpoint))
}

/// Warns of a listen address on another machine: legal for a server on all addresses, but usually a mistake.
fn warn_of_another_machine(listen: &Listen) {
    let name = &listen.name;
    let what = match listen.nic() {
        Some(nic) if nic::is_local(nic) => return,
        Some(nic) => match nic::address(nic) {
            Some(at) => format!("{} is not an address of this machine", at.ip()),
            None => "the host is another machine".to_owned(),
        },
        None => format!("unknown host '{}'", name.host),
    };
    log::warn!("{name}: {what}; listening on all addresses");
}

/// Returns the name by which an endpoint introduces itself.
pub(super) fn own_name(board: Option<u32>, identity: Identity) -> PeerName {
    PeerName {
        host: nic::machine_name().to_owned(),
        board,
        endpoint: Some(identity.endpoint.0),
        route: Route::AUTO,
    }
}

/// Reports that no endpoint could be opened, or reopened after a fork.
pub(super) fn no_endpoint(reason: SlotError) -> Box<Error> {
    match reason {
        SlotError::Ports(reason) => Error::open("the endpoint of before the fork", &reason),
        SlotError::Random(reason) => Error::system("random numbers (getrandom)", &reason, ""),
        SlotError::Doorbells(reason) => no_descriptors(reason),
        SlotError::Helper(reason) => {
            let limit = limits::of_threads(&reason, PROGRESS_STACK);
            let limit = format!("{limit}; MX_HELPER=off does without the thread");
            Error::system("no helper thread", &reason, &limit)
        }
    }
}

fn no_descriptors(reason: io::Error) -> Box<Error> {
    let limit = limits::of_descriptors(&reason);
    Error::system("no eventfd to wake threads with", &reason, &limit)
}

fn open_options(listen: Option<&Listen>, config: &Config) -> OpenOptions {
    let address = listen.and_then(own_address);
    let listen = listen.map(|listen| &listen.name);
    let endpoint = match listen.and_then(|name| name.endpoint) {
        Some(number) => EndpointChoice::Exact(EndpointId(number)),
        None => EndpointChoice::Any,
    };
    OpenOptions {
        board: listen.and_then(|name| name.board),
        address,
        // Peers that use that route in its name have no fallback.
        required: listen.map_or(Route::AUTO, |name| name.route),
        ..config.mx.open_options(endpoint)
    }
}

/// Returns the address in a server's name, or the one that its name resolves to if this machine has it: its peers
/// connect there.
fn own_address(listen: &Listen) -> Option<IpAddr> {
    let name = &listen.name;
    let named = || {
        listen.nic()?;
        let address = nic::listen_address(&name.host, name.board).ok()?;
        (!address.is_loopback()).then_some(address)
    };
    nic::literal_address(&name.host).or_else(named)
}

/// Stops the method. See `BMI_mx_finalize`.
pub fn finalize() -> Result<(), Box<Error>> {
    let Instance {
        shared, lifecycle, ..
    } = existing_instance().ok_or_else(not_initialized)?;
    let _one_at_a_time = lifecycle.lock();
    if !shared.is_mine() && shared.lock().drop_inherited(shared) {
        finalized();
        return Ok(());
    }
    let (open, shutdown) = {
        let mut slot = shared.lock();
        slot.method()?;
        // Detect closed descriptors first: then nothing may be closed or written.
        slot.check_lost();
        (slot.take(), slot.persistent.shutdown)
    };
    let method = open.map(Open::into_engine);
    shared.end();
    match method {
        Some(method) if method.endpoint().port().is_lost() => method.leave_port(),
        Some(mut method) => {
            deliver(&mut method, shutdown);
            method.close();
            leave(&mut method, shutdown);
        }
        None => {}
    }
    // The host drops its addresses next, and none may be registered afterwards.
    linger(LINGER, || {
        let telling = NOTIFYING.load(Ordering::Acquire) > 0;
        telling.then(|| (false, WakeDescriptors::default()))
    });
    finalized();
    Ok(())
}

fn finalized() {
    if !host::facts().drops_addresses {
        address::remove_all();
    }
    reserve::empty();
    log::info!("finalized");
}

/// Polls until buffered sends, complete for the host, have left, for a bounded time.
fn deliver(method: &mut HostMethod, at_most: Duration) {
    linger(at_most, || {
        let busy = method.progress();
        let endpoint = method.endpoint();
        (endpoint.flow_stats().copies > 0).then(|| (busy, endpoint.descriptors()))
    });
}

/// Polls until the last packets have left and the links are closed, for a bounded time.
fn leave(method: &mut HostMethod, at_most: Duration) {
    linger(at_most, || {
        let busy = method.leave();
        let endpoint = method.endpoint();
        (endpoint.port().link_count() > 0).then(|| (busy, endpoint.descriptors()))
    });
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer_name;
    use mx_sys::{ROUTE_DGRAM, ROUTE_RDM, ROUTE_TCP};

    #[test]
    fn what_the_name_to_listen_on_says_has_to_be_there() {
        for (text, board, required) in [
            ("mx://x", None, Route::AUTO),
            ("mx://tcp@x:2:7", Some(2), ROUTE_TCP),
            ("mx://rdm@x:0:7", Some(0), ROUTE_RDM),
            ("mx://x:1:7/dgram", Some(1), ROUTE_DGRAM),
        ] {
            let name = peer_name::parse(text).unwrap().unwrap();
            let listen = Listen {
                addr: address::create(name.clone(), None).unwrap(),
                name: name.into(),
            };
            assert!(address::remove(listen.addr.as_ptr()));
            let options = open_options(Some(&listen), &Config::default());
            assert_eq!((options.board, options.address), (board, None), "{text}");
            assert_eq!(options.required, required, "{text}");
        }
    }
}
