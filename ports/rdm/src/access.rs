//! Whether closing a registration ends the access to its memory: what this port's rule rests on, so every
//! provider with reads is asked before it is given memory of messages.
//!
//! ```text
//!   an endpoint that knows itself:   register, fi_read ........... gives what is there
//!                                    fi_close(registration)
//!                                    fi_read with the old key .... fails
//! ```
//!
//! A registration cache (`FI_MR_CACHE_MAX_COUNT`) only lays a closed registration aside, and the card goes on.
//! Who loads libfabric first decides about the cache, so setting the variable is not enough.
//!
//! Done in a domain of its own: a refused read breaks the connection that it goes over.
//!
//! Owns: the question. Out of scope: what follows from the answer (`provider`).

use super::ops::{Op, Ops};
use super::provider::Choice;
use libfabric_sys::Library;
use libfabric_sys::abi::{FI_EAGAIN, FI_READ, FI_REMOTE_READ};
use mx_port_fabric::{CqEvent, Domain, Ep, FabricError, Mr, OpenParams, Role, Wait, regions};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Nothing if closing ends access, or the reason why that is not known.
pub(super) fn ends_with_registration(
    library: &Arc<Library>,
    choice: &Choice,
) -> Result<(), String> {
    // Both outlive the domain.
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
        // The side that is read from would end the process.
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
    // What fails now and then says nothing.
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
        // A connection that comes up this late has messages of its own under way (`Ep::close`).
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

/// Reads of the endpoint from itself.
struct Reader<'a> {
    domain: &'a Domain,
    main: &'a Ep,
    ops: &'a mut Ops,
    into: (*mut u8, Option<&'a Mr>),
    /// Peer, remote address and key.
    from: (u64, u64, u64),
}

impl Reader<'_> {
    /// Makes a read. Returns the error of a refused one, none if it does not end.
    fn read(&mut self) -> Result<(), Option<i32>> {
        let until = Instant::now() + TIME;
        let (into, landing) = self.into;
        let desc = landing.map_or(std::ptr::null_mut(), Mr::desc);
        let (peer, remote, key) = self.from;
        let context = loop {
            let context = self.ops.begin(Op::Read(0));
            // SAFETY: pages and contexts outlive the endpoint; the pages are only looked at when the
            // read has ended.
            let posted = unsafe { self.main.read(into, LEN, desc, peer, remote, key, context) };
            match posted {
                Ok(()) => break context,
                // Connections are made by looking at the queue.
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

    /// The events in the queue now. After a while there is a pause before it is read.
    fn events(&self, until: Instant) -> Vec<CqEvent> {
        if until.saturating_duration_since(Instant::now()) < TIME - BUSY {
            std::thread::sleep(PAUSE);
        }
        let mut events = Vec::new();
        // A queue that is broken ends nothing.
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
        // SAFETY: within the region, which is ours; no Rust reference to it exists.
        unsafe { std::ptr::write_bytes(self.start(page), byte, LEN) };
    }

    fn hold(&self, page: usize, byte: u8) -> bool {
        let start = self.start(page);
        // SAFETY: as above, and written before.
        (0..LEN).all(|at| unsafe { start.wrapping_add(at).read_volatile() } == byte)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        regions::release(self.0);
    }
}

/// Bytes of each.
const LEN: usize = 4096;

/// The time that a read may take, with the connection it makes: of which a packet may be lost, and sent again after
/// four seconds.
const TIME: Duration = Duration::from_secs(10);

/// So long the queue is looked at without pauses.
const BUSY: Duration = Duration::from_millis(5);

const PAUSE: Duration = Duration::from_micros(200);

/// Reads of the queue, with pauses, before a connection is closed that may have just been made.
const SETTLING: usize = 100;

/// First reads that may fail.
const TRIES: usize = 5;
