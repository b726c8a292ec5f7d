//! A class of Mercury's: an endpoint from `initialize` to `finalize`.
//!
//! ```text
//!   initialize: settings, address --> HostPorts::open --> Engine, helper thread --> into a place of the pool
//!   finalize:   out of its place --> helper stopped --> peers told, last packets sent (bounded) --> place free
//! ```
//!
//! Places are never freed, so that the child of a fork finds their locks free.
//!
//! Owns: the pool of places.

use crate::abi::{
    NA_ADDRINUSE, NA_ADDRNOTAVAIL, NA_INVALID_ARG, NA_NODEV, NA_NOMEM, NA_PROTOCOL_ERROR, na_return,
};
use crate::address::{self, Peer};
use crate::engine::{Engine, Host, KEY, NaSlot};
use crate::libna::Libna;
use bmi_method::peer_name;
use mx_proto::{Config, Endpoint, EndpointId, Identity, Route};
use mx_sys::slot::{Open, SlotError};
use mx_sys::{
    EndpointChoice, Guard, HostPorts, MonotonicClock, OpenError, OpenOptions, ReopenOptions,
    Settings, Shared, StderrLogger, Tuning, linger, nic, reserve,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// A program's request for a class.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// Protocol: `mx`, or a port's name.
    pub(crate) protocol: &'a str,
    /// Address to listen on, `host`, `host:port` or `:port`; `None`: any.
    pub(crate) host: Option<&'a str>,
    /// Maximum size of unexpected and expected messages in bytes; 0 for the default.
    pub(crate) sizes: (usize, usize),
}

/// A class.
pub(crate) struct Class {
    place: &'static Place,
    /// Route of addresses without one.
    pub(crate) route: Route,
    /// Maximum size of unexpected messages, in bytes.
    pub(crate) unexpected_max: usize,
    /// Maximum size of expected messages, in bytes.
    pub(crate) expected_max: usize,
    /// Address of this endpoint.
    pub(crate) own: Arc<Peer>,
}

/// A place for an endpoint.
struct Place {
    shared: Arc<Shared<NaSlot>>,
}

static FREE: Mutex<Vec<&'static Place>> = Mutex::new(Vec::new());

/// Default maximum size of messages, in bytes.
const USUAL_SIZE: usize = 4096;
/// Upper limit of the maximum size, in bytes: an unmatched message must fit into a credit limit.
const SIZE_MAX: usize = 64 << 10;
/// Time that [`Class::close`] waits for the last messages to leave.
const LINGER: Duration = Duration::from_secs(1);

impl Class {
    /// Opens an endpoint.
    pub(crate) fn open(request: &Request<'_>, libna: &'static Libna) -> Result<Self, na_return> {
        StderrLogger::start();
        let route = address::route_of(request.protocol).ok_or(NA_INVALID_ARG)?;
        let (settings, refused) = Settings::of_na();
        for refused in refused {
            log::warn!("{refused}");
        }
        nic::set_peers_file(settings.peers.clone());
        reserve::fill();
        reserve::prepare_thread();
        let options = options(&settings, route, request.host)?;
        let size = |asked: usize| match asked {
            0 => USUAL_SIZE,
            asked => asked.clamp(256, SIZE_MAX),
        };
        let (unexpected_max, expected_max) = (size(request.sizes.0), size(request.sizes.1));
        let opened = HostPorts::open(options.clone()).map_err(SlotError::Ports);
        let (ports, identity) = opened.map_err(no_endpoint)?;
        let config = ports.endpoint_config(&settings.endpoint);
        let config = config.map_err(SlotError::Random).map_err(no_endpoint)?;
        let again = EndpointChoice::Exact(identity.endpoint);
        let anew = ReopenOptions::new(options, again, settings.tuning(), settings.helper);
        let place = Place::take()?;
        let tuned = place.shared.retune(anew.tuning);
        let open = tuned.map_err(SlotError::Doorbells).and_then(|()| {
            let engine = engine((config, identity), ports, route, (libna, unexpected_max));
            Open::new(engine, anew, &place.shared)
        });
        let open = open.map_err(|trouble| {
            FREE.lock().push(place);
            no_endpoint(trouble)
        })?;
        place.shared.lock().put(open);
        let name = (identity.nic, identity.endpoint);
        let own = Arc::new(Peer::new(name, route, identity.endpoint));
        log::info!("{} is open, session {:#x}", own.text(), identity.session.0);
        Ok(Self {
            place,
            route,
            unexpected_max,
            expected_max,
            own,
        })
    }

    /// Locks the engine. A child of `fork` first reopens the ports.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, NaSlot> {
        let shared = &self.place.shared;
        if !shared.is_mine() {
            self.take_over();
        }
        shared.lock()
    }

    /// Locks the engine as [`lock`](Self::lock) does, for a thread that polls.
    #[inline]
    pub(crate) fn lock_for_poll(&self) -> Guard<'_, NaSlot> {
        let shared = &self.place.shared;
        if !shared.is_mine() {
            self.take_over();
        }
        shared.lock_for_poll()
    }

    #[cold]
    fn take_over(&self) {
        let shared = &self.place.shared;
        let opened = NaSlot::open_anew(&mut shared.lock(), shared);
        if let Err(trouble) = opened {
            log::error!("after a fork: {trouble:?}");
        }
    }

    /// Runs `f` with the engine, and the deferred work that results.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        f: impl FnOnce(&mut Engine) -> Result<R, na_return>,
    ) -> Result<R, na_return> {
        let mut slot = self.lock();
        let engine = slot.engine().ok_or(NA_INVALID_ARG)?;
        let result = f(engine);
        engine.settle();
        result
    }

    /// Waits until `check` returns a value, or `timeout` has passed.
    pub(crate) fn wait<R>(
        &self,
        timeout: Duration,
        mut check: impl FnMut(&mut Engine) -> Option<R>,
    ) -> Option<R> {
        let shared = &self.place.shared;
        if !shared.is_mine() {
            self.take_over();
        }
        let found = shared.wait_for(crate::engine::COMPLETIONS, Some(timeout), |slot| {
            slot.engine().and_then(&mut check)
        });
        // Threads of other contexts may be asleep, and this one stops polling.
        let _ = self.with(|_| Ok(()));
        found
    }

    /// Closes the endpoint. Pending operations complete as cancelled or unreachable.
    pub(crate) fn close(self) {
        let shared = &self.place.shared;
        if !shared.is_mine() {
            shared.lock().drop_inherited(shared);
        } else if let Some(open) = { shared.lock().take() } {
            let mut engine = open.into_engine();
            engine.close();
            linger(LINGER, || {
                let busy = engine.poll();
                let descriptors = mx_sys::slot::Engine::endpoint(&*engine).descriptors();
                engine.lingers().then_some((busy, descriptors))
            });
        }
        shared.end();
        log::info!("{} is closed", self.own.text());
        FREE.lock().push(self.place);
    }
}

impl Place {
    fn take() -> Result<&'static Self, na_return> {
        if let Some(place) = FREE.lock().pop() {
            let shared = &place.shared;
            if !shared.is_mine() {
                // The parent closed an endpoint there before it forked.
                shared.lock().drop_inherited(shared);
            }
            return Ok(place);
        }
        let shared = Shared::new(NaSlot::new(()), Tuning::default());
        let shared = shared.map_err(|reason| no_endpoint(SlotError::Doorbells(reason)))?;
        let shared = Arc::new(shared);
        let place: &'static Self = Box::leak(Box::new(Self { shared }));
        place.shared.inherit();
        Ok(place)
    }
}

/// Makes the engine over these ports. Not inlined: the values moved here take several copies on the stack.
#[inline(never)]
fn engine(
    (config, identity): (Config, Identity),
    ports: Box<HostPorts>,
    route: Route,
    (libna, unexpected_max): (&'static Libna, usize),
) -> Box<Engine> {
    let host = Host::new(identity.endpoint, route);
    let endpoint = Endpoint::new(config, identity, KEY, *ports, MonotonicClock, host);
    Box::new(Engine::new(endpoint, libna, unexpected_max))
}

/// Returns the options of an endpoint that listens at the program's address.
fn options(
    settings: &Settings,
    route: Route,
    host: Option<&str>,
) -> Result<OpenOptions, na_return> {
    let usual = |choice| OpenOptions {
        policy: if route == Route::AUTO {
            settings.port
        } else {
            route
        },
        required: route,
        ..settings.open_options(choice)
    };
    let Some(host) = host.filter(|host| !host.is_empty()) else {
        return Ok(usual(EndpointChoice::Any));
    };
    let bad = |why: &dyn std::fmt::Display| {
        log::error!("cannot listen on {host:?}: {why}");
        NA_INVALID_ARG
    };
    // A port number alone means all addresses.
    let (everywhere, text) = match host.strip_prefix(':') {
        Some(port) => (true, format!("localhost:{port}")),
        None => (false, host.to_owned()),
    };
    let name = peer_name::parse(&format!("{}://{text}", address::CLASS));
    let Some(name) = name.map_err(|error| bad(&error))? else {
        return Err(bad(&"no address"));
    };
    let choice = match name.endpoint {
        // Port 0 means the kernel's choice, as in other plugins.
        None | Some(0) => EndpointChoice::Any,
        Some(endpoint) => EndpointChoice::Exact(EndpointId(endpoint)),
    };
    let only = if everywhere {
        None
    } else {
        let address = nic::listen_address(&name.host, name.board);
        Some(address.map_err(|error| {
            log::error!("cannot listen on {host:?}: {error}");
            NA_ADDRNOTAVAIL
        })?)
    };
    Ok(OpenOptions {
        board: name.board,
        address: only.filter(|address| !address.is_loopback()),
        tcp_bind: only,
        ..usual(choice)
    })
}

/// Returns the code for an endpoint that cannot be opened.
#[cold]
fn no_endpoint(trouble: SlotError) -> na_return {
    match trouble {
        SlotError::Ports(error) => {
            log::error!("{error}");
            match error {
                OpenError::InUse { .. } | OpenError::NoneFree => NA_ADDRINUSE,
                OpenError::Board(_) | OpenError::Listen { .. } => NA_ADDRNOTAVAIL,
                OpenError::Endpoint(_) => NA_INVALID_ARG,
                OpenError::Port(..) => NA_NODEV,
                OpenError::Secret(_) => NA_PROTOCOL_ERROR,
                OpenError::Descriptors(_) | OpenError::System(_) => NA_NOMEM,
            }
        }
        SlotError::Random(error) | SlotError::Doorbells(error) | SlotError::Helper(error) => {
            log::error!("no endpoint: {error}");
            NA_NOMEM
        }
    }
}
