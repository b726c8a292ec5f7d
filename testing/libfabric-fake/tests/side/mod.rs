//! A side of a conversation: every object from fabric to endpoint, opened and used through
//! libfabric's calls.
//!
//! ```text
//!   Side { fabric, domain, cq, av, ep, registrations }     events(): completions of the queue
//!   Lot  { bytes, context, registration }                  memory for one operation
//! ```

use std::ffi::c_void;
use std::ptr::null_mut;

use libfabric_fake::{Fake, Machine, Shape};
use libfabric_sys::InfoList;
use libfabric_sys::abi::*;
use libfabric_sys::calls::*;

/// Capabilities that a test requests if it has no preference.
pub(crate) const CAPS: u64 = FI_MSG | FI_RMA | FI_MULTI_RECV;

/// Requests offers without restrictions.
pub(crate) fn offers(machine: &Machine, caps: u64) -> Result<InfoList, i32> {
    let library = machine.library();
    let mut hints = library.hints().expect("memory");
    hints
        .set_caps(caps)
        .set_mode(u64::MAX)
        .set_mr_mode(i32::MAX);
    library.query(None, None, 0, Some(&hints))
}

/// Makes calls on objects of the fake.
macro_rules! calls {
    ($($name:ident $(<$t:ident>)? ($($arg:ident: $ty:ty),*) -> $out:ty = $call:expr;)*) => {$(
        pub(crate) fn $name $(<$t>)? ($($arg: $ty),*) -> $out {
            // SAFETY: the fake keeps its objects' memory when they are closed, and each begins with its `fid`.
            unsafe { $call }
        }
    )*};
}

calls! {
    close<T>(object: *mut T) -> i32 = fi_close(object.cast());
    bind<T>(ep: *mut fid_ep, object: *mut T, flags: u64) -> i32 = fi_ep_bind(ep, object.cast(), flags);
    enable(ep: *mut fid_ep) -> i32 = fi_enable(ep);
    mr_bind(mr: *mut fid_mr, ep: *mut fid_ep) -> i32 = fi_mr_bind(mr, ep.cast(), 0);
    mr_enable(mr: *mut fid_mr) -> i32 = fi_mr_enable(mr);
    key_of(mr: *mut fid_mr) -> u64 = (*mr).key;
    desc_of(mr: *mut fid_mr) -> *mut c_void = (*mr).mem_desc;
    inject(ep: *mut fid_ep, bytes: &[u8], to: u64) -> isize =
        fi_inject(ep, bytes.as_ptr().cast(), bytes.len(), to);
    trywait(fabric: *mut fid_fabric, fids: &mut [*mut fid; 1]) -> i32 =
        fi_trywait(fabric, fids.as_mut_ptr(), 1);
    getwait(cq: *mut fid_cq, fd: &mut i32) -> i32 = fi_getwait(cq.cast(), fd);
    av_remove(av: *mut fid_av, handle: &mut u64) -> i32 = fi_av_remove(av, handle, 1, 0);
}

/// Registers memory, without accessing it.
pub(crate) fn register(
    domain: *mut fid_domain,
    start: *const u8,
    len: usize,
    access: u64,
    key: u64,
) -> (i32, *mut fid_mr) {
    let (mut mr, none) = (null_mut(), null_mut());
    // SAFETY: as above; operations on the memory end before it is freed.
    let code = unsafe {
        fi_mr_reg(
            domain,
            start.cast(),
            len,
            access,
            0,
            key,
            0,
            &raw mut mr,
            none,
        )
    };
    (code, mr)
}

pub(crate) fn open_queue(domain: *mut fid_domain, wait: u32) -> (i32, *mut fid_cq) {
    let mut cq = null_mut();
    let mut attr = fi_cq_attr {
        format: FI_CQ_FORMAT_TAGGED,
        wait_obj: wait,
        ..fi_cq_attr::EMPTY
    };
    // SAFETY: as above.
    let code = unsafe { fi_cq_open(domain, &raw mut attr, &raw mut cq, null_mut()) };
    (code, cq)
}

/// Returns the result of reading a queue; the completion itself is dropped.
pub(crate) fn look(cq: *mut fid_cq) -> isize {
    let mut entry = [0u64; 6];
    // SAFETY: as above, and room for one completion.
    unsafe { fi_cq_read(cq, entry.as_mut_ptr().cast(), 1) }
}

/// Opens an endpoint that is neither bound nor enabled.
pub(crate) fn unbound(domain: *mut fid_domain, info: *mut fi_info) -> *mut fid_ep {
    let mut ep = null_mut();
    // SAFETY: as above, and a live info.
    let code = unsafe { fi_endpoint(domain, info, &raw mut ep, null_mut()) };
    assert_eq!(code, 0);
    ep
}

/// An open endpoint with all its objects.
pub(crate) struct Side {
    pub(crate) fabric: *mut fid_fabric,
    pub(crate) domain: *mut fid_domain,
    pub(crate) cq: *mut fid_cq,
    pub(crate) av: *mut fid_av,
    pub(crate) ep: *mut fid_ep,
    pub(crate) info: InfoList,
    pub(crate) prefix: usize,
    pub(crate) mr_mode: i32,
    pub(crate) regions: Vec<*mut fid_mr>,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) error: i32,
    pub(crate) olen: usize,
}

impl Side {
    pub(crate) fn open(machine: &Machine) -> Self {
        Self::with(machine, CAPS, FI_WAIT_NONE)
    }

    pub(crate) fn with(machine: &Machine, caps: u64, wait: u32) -> Self {
        let info = offers(machine, caps).expect("an offer");
        let first = info.first().expect("an offer");
        let fabric = machine.library().fabric(first).expect("a fabric").as_ptr();
        let (mut domain, mut av) = (null_mut(), null_mut());
        // SAFETY: an open fabric and a live info.
        let code = unsafe { fi_domain(fabric, first.as_ptr(), &raw mut domain, null_mut()) };
        assert_eq!(code, 0);
        let (code, cq) = open_queue(domain, wait);
        assert_eq!(code, 0);
        let mut attr = fi_av_attr::EMPTY;
        // SAFETY: an open domain.
        let code = unsafe { fi_av_open(domain, &raw mut attr, &raw mut av, null_mut()) };
        assert_eq!(code, 0);
        let ep = unbound(domain, first.as_ptr());
        let (prefix, mr_mode) = (first.msg_prefix_size(), first.mr_mode());
        let side = Self {
            fabric,
            domain,
            cq,
            av,
            ep,
            info,
            prefix,
            mr_mode,
            regions: Vec::new(),
        };
        assert_eq!(bind(ep, cq, FI_TRANSMIT | FI_RECV), 0);
        assert_eq!(bind(ep, av, 0), 0);
        assert_eq!(enable(ep), 0);
        side
    }

    pub(crate) fn address(&self) -> Vec<u8> {
        let mut bytes = vec![0u8; 64];
        let mut len = bytes.len();
        // SAFETY: room of that length.
        let code = unsafe { fi_getname(self.ep, bytes.as_mut_ptr().cast(), &raw mut len) };
        assert_eq!(code, 0);
        bytes.truncate(len);
        bytes
    }

    pub(crate) fn insert(&self, address: &[u8]) -> u64 {
        let mut handle = 0;
        // SAFETY: one address of the right length.
        let count = unsafe {
            fi_av_insert(
                self.av,
                address.as_ptr().cast(),
                1,
                &raw mut handle,
                0,
                null_mut(),
            )
        };
        assert_eq!(count, 1);
        handle
    }

    /// Registers memory, bound and enabled as the provider requires.
    pub(crate) fn register(&mut self, bytes: &mut [u8], access: u64) -> *mut fid_mr {
        self.try_register(bytes, access).expect("a registration")
    }

    pub(crate) fn try_register(
        &mut self,
        bytes: &mut [u8],
        access: u64,
    ) -> Result<*mut fid_mr, i32> {
        let key = 1 + self.regions.len() as u64;
        let (code, mr) = register(self.domain, bytes.as_ptr(), bytes.len(), access, key);
        if code != 0 {
            return Err(code);
        }
        if self.mr_mode & FI_MR_ENDPOINT != 0 {
            assert_eq!(mr_bind(mr, self.ep), 0);
            assert_eq!(mr_enable(mr), 0);
        }
        self.regions.push(mr);
        Ok(mr)
    }

    /// Makes memory for an operation, registered if the provider requires that.
    pub(crate) fn lot(&mut self, len: usize) -> Lot {
        let mut lot = Lot {
            bytes: vec![0; len.max(1)],
            len,
            context: Box::new(fi_context2::EMPTY),
            desc: null_mut(),
            prefix: self.prefix,
        };
        if self.mr_mode & FI_MR_LOCAL != 0 {
            let mr = self.register(&mut lot.bytes, FI_SEND | FI_RECV | FI_READ);
            lot.desc = desc_of(mr);
        }
        lot
    }

    /// Makes such memory, filled behind the prefix.
    pub(crate) fn filled(&mut self, bytes: &[u8]) -> Lot {
        let prefix = self.prefix;
        let mut lot = self.lot(prefix + bytes.len());
        lot.bytes[prefix..prefix + bytes.len()].copy_from_slice(bytes);
        lot
    }

    pub(crate) fn send(&self, lot: &mut Lot, to: u64) -> isize {
        let (bytes, context) = lot.raw();
        self.send_at(bytes, (lot.len, lot.desc), to, context)
    }

    /// Sends with a context that the test chooses.
    pub(crate) fn send_at(
        &self,
        bytes: *mut c_void,
        (len, desc): (usize, *mut c_void),
        to: u64,
        context: *mut c_void,
    ) -> isize {
        // SAFETY: the test keeps the memory longer than the operation. So in all below.
        unsafe { fi_send(self.ep, bytes, len, desc, to, context) }
    }

    pub(crate) fn inject(&self, bytes: &[u8], to: u64) -> isize {
        inject(self.ep, bytes, to)
    }

    pub(crate) fn receive(&self, lot: &mut Lot) -> isize {
        let (bytes, context) = lot.raw();
        // SAFETY: as above.
        unsafe { fi_recv(self.ep, bytes, lot.len, lot.desc, FI_ADDR_UNSPEC, context) }
    }

    /// Sends the segments of `iov`.
    pub(crate) fn send_pieces(
        &self,
        iov: &[libc::iovec],
        to: u64,
        context: *mut c_void,
        flags: u64,
    ) -> isize {
        let msg = fi_msg {
            msg_iov: iov.as_ptr(),
            desc: null_mut(),
            iov_count: iov.len(),
            addr: to,
            context,
            data: 0,
        };
        // SAFETY: as above.
        unsafe { fi_sendmsg(self.ep, &raw const msg, flags) }
    }

    pub(crate) fn multi_receive(&self, lot: &mut Lot) -> isize {
        let (bytes, context) = lot.raw();
        let iov = libc::iovec {
            iov_base: bytes,
            iov_len: lot.len,
        };
        let msg = fi_msg {
            msg_iov: &raw const iov,
            desc: &raw mut lot.desc,
            iov_count: 1,
            addr: FI_ADDR_UNSPEC,
            context,
            data: 0,
        };
        // SAFETY: as above.
        unsafe { fi_recvmsg(self.ep, &raw const msg, FI_MULTI_RECV) }
    }

    pub(crate) fn read(&self, lot: &mut Lot, from: u64, addr: u64, key: u64) -> isize {
        let (bytes, context) = lot.raw();
        // SAFETY: as above.
        unsafe { fi_read(self.ep, bytes, lot.len, lot.desc, from, addr, key, context) }
    }

    pub(crate) fn set_least_multi(&self, least: usize) {
        // SAFETY: a size_t.
        let code = unsafe {
            fi_setopt(
                self.ep,
                FI_OPT_ENDPOINT,
                FI_OPT_MIN_MULTI_RECV,
                (&raw const least).cast(),
                size_of::<usize>(),
            )
        };
        assert_eq!(code, 0);
    }

    /// Returns all completions that the queue has now.
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.event() {
            events.push(event);
        }
        events
    }

    /// Polls once.
    pub(crate) fn event(&self) -> Option<Event> {
        let mut entry = fi_cq_tagged_entry {
            op_context: null_mut(),
            flags: 0,
            len: 0,
            buf: null_mut(),
            data: 0,
            tag: 0,
        };
        let to = (&raw mut entry).cast::<c_void>();
        // SAFETY: room for one.
        match unsafe { fi_cq_read(self.cq, to, 1) } {
            1 => Some(Event {
                context: entry.op_context as usize,
                flags: entry.flags,
                len: entry.len,
                error: 0,
                olen: 0,
            }),
            code if code == -(FI_EAVAIL as isize) => {
                let mut failed = fi_cq_err_entry::EMPTY;
                // SAFETY: room for one.
                assert_eq!(unsafe { fi_cq_readerr(self.cq, &raw mut failed, 0) }, 1);
                Some(Event {
                    context: failed.op_context as usize,
                    flags: failed.flags,
                    len: failed.len,
                    error: failed.err,
                    olen: failed.olen,
                })
            }
            code => {
                assert_eq!(code, -(FI_EAGAIN as isize));
                None
            }
        }
    }

    /// Closes the endpoint and its registrations: before it those that belong to it, after it those
    /// that its operations use.
    pub(crate) fn close_endpoint(&mut self) {
        if self.ep.is_null() {
            return;
        }
        if self.mr_mode & FI_MR_LOCAL == 0 {
            self.close_regions();
        }
        assert_eq!(close(self.ep), 0);
        self.ep = null_mut();
        self.close_regions();
    }

    fn close_regions(&mut self) {
        for mr in self.regions.drain(..) {
            // The fault of staying busy ends.
            while close(mr) == -FI_EBUSY {}
        }
    }

    pub(crate) fn close(mut self) {
        self.close_endpoint();
        for object in [self.cq.cast::<fid>(), self.av.cast(), self.domain.cast()] {
            assert_eq!(close(object), 0);
        }
        assert_eq!(close(self.fabric), 0);
    }
}

/// Memory for one operation.
pub(crate) struct Lot {
    pub(crate) bytes: Vec<u8>,
    pub(crate) len: usize,
    pub(crate) context: Box<fi_context2>,
    pub(crate) desc: *mut c_void,
    pub(crate) prefix: usize,
}

impl Lot {
    pub(crate) fn raw(&mut self) -> (*mut c_void, *mut c_void) {
        (
            self.bytes.as_mut_ptr().cast(),
            (&raw mut *self.context).cast(),
        )
    }

    pub(crate) fn id(&self) -> usize {
        (&raw const *self.context) as usize
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[self.prefix..self.len]
    }
}

/// Makes memory that needs no registration.
pub(crate) fn lot(bytes: &[u8]) -> Lot {
    Lot {
        bytes: bytes.to_vec(),
        len: bytes.len(),
        context: Box::new(fi_context2::EMPTY),
        desc: null_mut(),
        prefix: 0,
    }
}

/// Returns a shape without connections and delays.
pub(crate) fn plain() -> Shape {
    Shape {
        connect_polls: 0,
        ..Shape::tcp()
    }
}

/// Two connected sides over one fake.
pub(crate) struct Pair {
    pub(crate) fake: Fake,
    pub(crate) a: Side,
    pub(crate) b: Side,
    /// Address of each side at the other.
    pub(crate) to_b: u64,
    pub(crate) to_a: u64,
}

pub(crate) fn pair(shape: Shape) -> Pair {
    pair_with(shape, CAPS, FI_WAIT_NONE)
}

pub(crate) fn pair_with(shape: Shape, caps: u64, wait: u32) -> Pair {
    let fake = Fake::new(shape, 1);
    let (a, b) = (
        Side::with(fake.first(), caps, wait),
        Side::with(&fake.machine(&[]), caps, wait),
    );
    let (to_b, to_a) = (a.insert(&b.address()), b.insert(&a.address()));
    Pair {
        fake,
        a,
        b,
        to_b,
        to_a,
    }
}

impl Pair {
    /// Sends a message for which a receive is posted at the other side.
    pub(crate) fn exchange(&self, out: &mut Lot, into: &mut Lot) {
        let posted = (self.b.receive(into), self.a.send(out, self.to_b));
        assert_eq!(posted, (0, 0));
    }

    #[track_caller]
    pub(crate) fn noticed(&self, what: &str) {
        noticed(&self.fake, what);
    }

    pub(crate) fn end(self) {
        self.a.close();
        self.b.close();
        self.fake.assert_clean();
        assert_eq!(self.fake.open_objects(), Vec::<String>::new());
        assert_eq!(self.fake.lent(), 0);
    }
}

/// Checks that the fake has recorded this violation and no other.
#[track_caller]
pub(crate) fn noticed(fake: &Fake, what: &str) {
    let violations = fake.take_violations();
    assert_eq!(violations.len(), 1, "{what}: {violations:#?}");
    assert!(violations[0].contains(what), "{what}: {violations:#?}");
}

/// Returns the errors of the events.
pub(crate) fn errors(events: &[Event]) -> Vec<i32> {
    events.iter().map(|event| event.error).collect()
}
