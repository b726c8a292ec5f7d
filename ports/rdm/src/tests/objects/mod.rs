//! Objects of the installed libfabric, over 127.0.0.1.
//!
//! Requires one: `apt-get install libfabric1`, or `MX_LIBFABRIC=/path/libfabric.so.1`. The tests run with each default
//! software provider that the library has.

mod faulty;

use crate::provider::Choice;
use crate::{Device, RdmOptions};
use libfabric_sys::Library;
use libfabric_sys::abi::{FI_EAGAIN, FI_EINVAL, FI_RECV, FI_REMOTE_READ, FI_SEND, fi_context2};
use mx_port_fabric::{CqEvent, Domain, Ep, FabricError, Mr, OpenParams, REGISTER, Role, Wait};
use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::net::Ipv4Addr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Contexts that any provider may write into.
struct Contexts(Vec<fi_context2>);

impl Contexts {
    fn new(count: usize) -> Self {
        Self(vec![fi_context2::EMPTY; count])
    }

    fn at(&mut self, index: usize) -> *mut c_void {
        assert!(index < self.0.len());
        self.0.as_mut_ptr().wrapping_add(index).cast()
    }
}

/// Open domain and its shared endpoint.
struct Side {
    domain: Domain,
    main: Ep,
    events: RefCell<Vec<CqEvent>>,
}

impl Side {
    fn open(library: &Arc<Library>, choice: &Choice) -> Self {
        // Tested even where `rdm` does not use it: `ofi_rxm` 1.17.
        let multi_recv = true;
        let terms = OpenParams {
            multi_recv,
            ..choice.plan.terms.clone()
        };
        let domain = Domain::open(Arc::clone(library), &choice.info, terms).unwrap();
        let main = domain.endpoint(Role::Main).unwrap();
        let events = RefCell::default();
        Self {
            domain,
            main,
            events,
        }
    }

    fn poll(&self) {
        let mut events = self.events.borrow_mut();
        self.domain.read(&mut *events, 64).unwrap();
    }

    fn take(&self, wanted: impl Fn(&CqEvent) -> bool) -> Option<CqEvent> {
        self.poll();
        take(&self.events, wanted)
    }
}

fn take(events: &RefCell<Vec<CqEvent>>, wanted: impl Fn(&CqEvent) -> bool) -> Option<CqEvent> {
    let mut events = events.borrow_mut();
    let at = events.iter().position(wanted)?;
    Some(events.remove(at))
}

fn is_done(event: &CqEvent) -> bool {
    event.outcome.is_ok()
}

/// Calls `attempt` until it returns a value.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: nothing in 20 s");
    }
}

/// Posts until there is room, reading the queues: connecting needs both sides.
fn post(what: &str, poll: impl Fn(), mut attempt: impl FnMut() -> Result<(), i32>) {
    until(what, || {
        match attempt() {
            Ok(()) => return Some(()),
            Err(FI_EAGAIN) => (),
            Err(code) => panic!("{what}: error {code}"),
        }
        poll();
        None
    });
}

/// Posts a multi-receive buffer.
///
/// # Safety
///
/// `room` and `context` must outlive `side`.
unsafe fn receive(side: &Side, room: &mut [u8], context: *mut c_void) {
    let (start, len) = (room.as_mut_ptr(), room.len());
    // SAFETY: guaranteed by the caller.
    let posted = unsafe {
        side.main
            .receive(start, len, std::ptr::null_mut(), true, context)
    };
    posted.unwrap();
}

fn poll(a: &Side, b: &Side) {
    a.poll();
    b.poll();
}

fn installed() -> Arc<Library> {
    match Library::get() {
        Ok(library) => Arc::new(library.clone()),
        Err(error) => panic!("these tests need a libfabric: {error}"),
    }
}

fn choose(library: &Library, provider: &str) -> Option<Choice> {
    let options = RdmOptions {
        provider: Some(provider.to_owned()),
        device: Device::only(Ipv4Addr::LOCALHOST.into()),
        ..RdmOptions::default()
    };
    Choice::make(library, &options, Ok).ok()
}

/// Runs `test` with each provider available here, at least one.
fn with_providers(test: impl Fn(&Arc<Library>, &Choice)) {
    let library = installed();
    let mut tried = Vec::new();
    for provider in ["tcp", "tcp;ofi_rxm"] {
        if let Some(choice) = choose(&library, provider) {
            test(&library, &choice);
            tried.push(provider);
        }
    }
    assert!(
        !tried.is_empty(),
        "no provider of {library:?} goes over 127.0.0.1"
    );
    println!("{library:?}: {}", tried.join(", "));
}

/// Creates two domains that know each other: the sides, `b`'s address at `a`, and `a`'s address at `b`.
fn pair(library: &Arc<Library>, choice: &Choice) -> (Side, Side, u64, u64) {
    let (a, b) = (Side::open(library, choice), Side::open(library, choice));
    let to_b = a.domain.insert(b.main.address()).unwrap();
    let to_a = b.domain.insert(a.main.address()).unwrap();
    (a, b, to_b, to_a)
}

/// Waits for the descriptor to become readable; returns whether it did.
fn sleep(fd: RawFd, timeout_ms: c_int) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: an array of one.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) == 1 }
}

#[test]
fn one_sleeps_on_the_descriptor_until_a_message_comes() {
    with_providers(|library, choice| {
        let (a, b, to_b, to_a) = pair(library, choice);
        let plan = choice.plan.clone();
        let fd = b.domain.wait_fd().expect("software providers have one");
        assert_eq!(b.domain.params().wait, Wait::Fd);
        let mut contexts = Contexts::new(2);
        let mut rooms = [0, 1].map(|_| vec![0_u8; 4 * (plan.prefix() + plan.terms.frame_max)]);
        for (index, side) in [&a, &b].into_iter().enumerate() {
            let context = contexts.at(index);
            // SAFETY: the rooms and contexts outlive both sides.
            unsafe { receive(side, &mut rooms[index], context) };
        }
        let frame = vec![3_u8; plan.prefix() + plan.terms.inject_max];
        // Both directions are connected before either side sleeps.
        for direction in 0..2 {
            let to = [to_b, to_a][direction];
            post(
                "inject",
                || poll(&a, &b),
                || [&a, &b][direction].main.inject(&frame, to),
            );
            until("receive", || match direction {
                0 => {
                    a.poll();
                    b.take(is_done)
                }
                _ => {
                    b.poll();
                    a.take(is_done)
                }
            });
        }
        // The descriptor may need a few reads until it is quiet, while connections settle.
        until("rest", || {
            b.poll();
            (b.domain.may_sleep() && !sleep(fd, 20)).then_some(())
        });
        assert!(b.events.borrow().is_empty(), "{:?}", b.events);
        post("inject", || a.poll(), || a.main.inject(&frame, to_b));
        // Readable, perhaps without a completion at first.
        until("wake-up", || {
            a.poll();
            if b.domain.may_sleep() {
                assert!(sleep(fd, 5000), "{}: slept through it", plan.terms.provider);
            }
            b.take(is_done)
        });
    });
}

#[test]
fn addresses_that_cannot_be_are_refused() {
    with_providers(|library, choice| {
        let side = Side::open(library, choice);
        let good = side.main.address().to_vec();
        for bad in [&good[..0], &good[..4], &good[..good.len() - 1]] {
            let error = side.domain.insert(bad).unwrap_err();
            assert_eq!((error.what, error.code), ("fi_av_insert", FI_EINVAL));
        }
        let long = [good.clone(), vec![0; 300]].concat();
        assert!(side.domain.insert(&long).is_err());
        let mut other_family = good.clone();
        other_family[..2].copy_from_slice(&(libc::AF_UNIX as u16).to_ne_bytes());
        assert!(side.domain.insert(&other_family).is_err());
        assert!(side.domain.insert(&good).is_ok());
    });
}

#[test]
fn registered_memory_has_a_key_and_may_outlive_its_domain() {
    with_providers(|library, choice| {
        let side = Side::open(library, choice);
        let mut memory = vec![0_u8; 1 << 16];
        let access = FI_SEND | FI_RECV | FI_REMOTE_READ;
        let mut register = |offset: usize| {
            let start = memory[offset..].as_mut_ptr();
            // SAFETY: `memory` outlives the registrations.
            unsafe { side.domain.register(start, 4096, access, Some(&side.main)) }.unwrap()
        };
        let (first, second) = (register(0), register(4096));
        assert_ne!(first.key(), second.key());
        assert_eq!(first.remote_base(memory.as_ptr()), 0);
        assert_eq!(first.remote_base(memory[7..].as_ptr()), 7);
        assert!(first.close().is_ok());
        let Side { domain, main, .. } = side;
        drop(domain);
        drop(main);
        assert!(second.close().is_ok());
    });
}

#[test]
fn what_was_not_asked_for_is_not_called() {
    with_providers(|library, choice| {
        let side = Side::open(library, choice);
        let mut byte = 0_u8;
        let none = std::ptr::null_mut();
        // SAFETY: rejected before anything is touched.
        let read = unsafe { side.main.read(&raw mut byte, 1, none, 0, 0, 0, none) };
        assert_eq!(read, Err(libfabric_sys::abi::FI_ENOSYS));
        let long = vec![0; choice.plan.prefix() + choice.plan.terms.inject_max + 1];
        let injected = side.main.inject(&long, 0);
        assert_eq!(injected, Err(libfabric_sys::abi::FI_EMSGSIZE));
        assert_eq!(side.domain.read(&mut Vec::<CqEvent>::new(), 16), Ok(0));
    });
}
