//! Checks that closing a registration ends access to its memory. The port's main rule depends on that, so every
//! provider with reads is tested before it gets memory of messages.
//!
//! ```text
//!   an endpoint with its own address:   register, fi_read ........... returns the memory's contents
//!                                       fi_close(registration)
//!                                       fi_read with the old key .... fails
//! ```
//!
//! A registration cache (`FI_MR_CACHE_MAX_COUNT`) keeps a closed registration, so the card still has access. The first
//! code to load libfabric decides about the cache, so setting the variable is not enough.
//!
//! Runs in a separate domain: a rejected read breaks its connection.
//!
//! Owns: the test. Out of scope: consequences of its result (`provider`).

use super::ops::{Op, Ops};
use super::provider::Choice;
use libfabric_sys::Library;
use libfabric_sys::abi::{FI_EAGAIN, FI_READ, FI_REMOTE_READ};
use mx_port_fabric::{CqEvent, Domain, Ep, FabricError, Mr, OpenParams, Role, Wait, regions};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns `Ok` if closing ends access, or the reason why that is not known.
pub(super) fn ends_with_registration(
    library: &Arc<Library>,
    choice: &Choice,
) -> Result<(), String> {
    // Declared first, so that both outlive the domain.
    let pages = Pages::new().ok_or("there is no memory to try it with")?;
    let mut ops = Ops::default();
    let terms = OpenParams {
        wait: Wait::Poll,
        ..choice.plan.terms.clone()
    };
    let text = |error: FabricError| error.to_string();
    let domain = Domain::open(Arc::clone(library), &choice.info, terms).map_err(text)?;
    let main = domain.endpoint(Role::Main).map_err(text)?;
    if choice.plan.terms.provider == "efa" && main.emulates_reads() {
        // Emulated reads would abort the process of the side that is read.
        return Err("its reads are made by software".into());
    }
    let itself = domain.insert(main.address()).map_err(text)?;
    let register = |page: usize, access| {
        // SAFETY: the pages outlive the domain, and with it every registration.
        unsafe { domain.register(pages.start(page), LEN, access, Some(&main)) }.map_err(text)
    };
    let source = register(0, FI_REMOTE_READ)?;
    let landing = choice
        .plan
        .mr_local
        .then(|| register(1, FI_READ))
        .transpose()?;
    let mut reader = Reader {
        domain: &domain,
        main: &main,
        ops: &mut ops,
        into: (pages.start(1), landing.as_ref()),
        from: (itself, source.remote_base(pages.start(0)), source.key()),
    };
    pages.fill(0, b'a');
    // An occasional failure proves nothing.
    let mut first = Err(None);
    for _ in 0..TRIES {
        pages.fill(1, 0);
        first = reader.read();
        match first {
            Ok(()) | Err(None) => break,
            Err(Some(_)) => {}
        }
    }
    if let Err(code) = first {
        // A connection that comes up this late still exchanges messages of its own (`Ep::close`).
        (0..SETTLING).for_each(|_| drop(reader.events(Instant::now())));
        let why = code.map_or_else(
            || "it does not end".to_owned(),
            |code| library.strerror(code),
        );
        return Err(format!("an endpoint of it cannot read from itself ({why})"));
    }
    if !pages.hold(1, b'a') {
        return Err("a read of registered memory gives something else".into());
    }
    reader.close(source)?;
    pages.fill(0, b'b');
    match reader.read() {
        Err(Some(_)) => Ok(()),
        Err(None) => Err("a read of a closed registration does not end".into()),
        Ok(()) => Err("memory can be read after its registration was closed".into()),
    }
}

/// Endpoint that reads from itself.
struct Reader<'a> {
    domain: &'a Domain,
    main: &'a Ep,
    ops: &'a mut Ops,
    into: (*mut u8, Option<&'a Mr>),
    /// Peer, remote address and key.
    from: (u64, u64, u64),
}

impl Reader<'_> {
    /// Reads once. Fails with the error of a rejected read, or `None` if the read does not end.
    fn read(&mut self) -> Result<(), Option<i32>> {
        let until = Instant::now() + TIME;
        let (into, landing) = self.into;
        let desc = landing.map_or(std::ptr::null_mut(), Mr::desc);
        let (peer, remote, key) = self.from;
        let context = loop {
            let context = self.ops.begin(Op::Read(0));
            // SAFETY: pages and contexts outlive the endpoint; the pages are accessed only after the read has ended.
            let posted = unsafe { self.main.read(into, LEN, desc, peer, remote, key, context) };
            match posted {
                Ok(()) => break context,
                // Reading the queue makes progress on connecting.
                Err(FI_EAGAIN) if Instant::now() < until => {
                    self.ops.end(context);
                    self.events(until);
                }
                Err(FI_EAGAIN) => return Err(None),
                Err(code) => return Err(Some(code)),
            }
        };
        while Instant::now() < until {
            for event in self.events(until) {
                if event.context == context {
                    return event.outcome.map(drop).map_err(Some);
                }
            }
        }
        Err(None)
    }

    fn close(&mut self, registration: Mr) -> Result<(), String> {
        let until = Instant::now() + TIME;
        let mut closed = registration.close();
        while let Err((registration, code)) = closed {
            if Instant::now() >= until {
                return Err(format!("it does not close a registration (error {code})"));
            }
            self.events(until);
            closed = registration.close();
        }
        Ok(())
    }

    /// Returns the events in the queue now, after a pause once [`BUSY`] is over.
    fn events(&self, until: Instant) -> Vec<CqEvent> {
        if until.saturating_duration_since(Instant::now()) < TIME - BUSY {
            std::thread::sleep(PAUSE);
        }
        let mut events = Vec::new();
        // A broken queue completes nothing.
        let _ = self.domain.read(&mut events, 16);
        events
    }
}

/// Memory that is read, and memory that is read into.
struct Pages(*mut libc::c_void);

impl Pages {
    fn new() -> Option<Self> {
        regions::allocate(2 * LEN).map(Self)
    }

    fn start(&self, page: usize) -> *mut u8 {
        self.0.cast::<u8>().wrapping_add(page * LEN)
    }

    fn fill(&self, page: usize, byte: u8) {
        // SAFETY: within our region, to which no Rust reference exists.
        unsafe { std::ptr::write_bytes(self.start(page), byte, LEN) };
    }

    fn hold(&self, page: usize, byte: u8) -> bool {
        let start = self.start(page);
        // SAFETY: as above, and initialised before.
        (0..LEN).all(|at| unsafe { start.wrapping_add(at).read_volatile() } == byte)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        regions::release(self.0);
    }
}

/// Bytes of each page.
const LEN: usize = 4096;

/// Time limit of a read, including connecting: a lost packet of which may be resent only after four seconds.
const TIME: Duration = Duration::from_secs(10);

/// Time for which the queue is read without pauses.
const BUSY: Duration = Duration::from_millis(5);

const PAUSE: Duration = Duration::from_micros(200);

/// Number of queue reads, with pauses, before a perhaps new connection is closed.
const SETTLING: usize = 100;

/// Maximum number of attempts at the first read.
const TRIES: usize = 5;
