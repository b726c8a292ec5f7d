//! Answers of the real library, and one message over it.
//!
//! ```text
//!   query --> offers --> keep one --> fabric, domain, queue, vector
//!                                       endpoint one -- "hello", 0x42 --> endpoint two
//! ```
//!
//! Without a libfabric each case prints that and ends.

use std::ffi::CStr;
use std::time::{Duration, Instant};

use libfabric_sys::abi::*;
use libfabric_sys::calls::*;
use libfabric_sys::{Hints, Info, InfoList, Library};

use super::real;

pub(crate) fn the_real_library_lists_providers() {
    let Some(library) = real() else { return };
    let list = library.query(None, None, 0, None).expect("some provider");
    assert!(!list.is_empty());
    let mut seen: Vec<String> = Vec::new();
    for info in &list {
        let provider = info.provider().into_owned();
        assert!(!provider.is_empty());
        assert_ne!(info.caps(), 0, "{provider}");
        assert!(info.ep_type() <= FI_EP_RDM, "{provider}");
        assert_eq!(info.api_version(), library.api_version(), "{provider}");
        assert!(info.max_msg_size() > 0, "{provider}");
        if !seen.contains(&provider) {
            seen.push(provider);
        }
    }
    let (major, minor) = library.version();
    println!("  libfabric {major}.{minor}: {}", seen.join(" "));
    assert!(
        seen.iter().any(|provider| provider.starts_with("tcp")),
        "tcp is always there"
    );
    assert_eq!(library.strerror(FI_ETRUNC), "Truncation error");
    assert_eq!(
        library.strerror(-FI_EAGAIN),
        "Resource temporarily unavailable"
    );
}

/// Returns the offers for a port over tagged messages, of the first provider here that has any, and
/// its name.
fn rdm(library: &'static Library) -> (String, InfoList) {
    for provider in ["tcp", "tcp;ofi_rxm"] {
        let hints = rdm_hints(library, provider);
        let node = Some(c"127.0.0.1");
        let Ok(list) = library.query(node, None, FI_SOURCE | FI_NUMERICHOST, Some(&hints)) else {
            continue;
        };
        // Asked for `tcp`, 1.17 answers with `tcp;ofi_rxm`.
        if let Some(info) = list.iter().find(|info| info.provider() == provider) {
            return (
                provider.to_owned(),
                list.keep(info).expect("there is memory"),
            );
        }
    }
    panic!("neither tcp nor tcp;ofi_rxm");
}

fn rdm_hints(library: &Library, provider: &str) -> Hints {
    let mut hints = library.hints().expect("there is memory");
    hints
        .set_caps(FI_MSG | FI_TAGGED)
        .set_mode(FI_CONTEXT | FI_CONTEXT2)
        .set_ep_type(FI_EP_RDM)
        .set_msg_order(FI_ORDER_SAS)
        .set_mr_mode(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
    // Twice: the first string must be freed, which the memory checkers look at.
    hints.set_provider("another").expect("a C string");
    hints.set_provider(provider).expect("a C string");
    hints
}

pub(crate) fn hints_choose_the_provider() {
    let Some(library) = real() else { return };
    let (provider, list) = rdm(library);
    println!("  {provider}");
    for info in &list {
        assert_eq!(info.provider(), *provider);
        assert_eq!(info.ep_type(), FI_EP_RDM);
        assert_eq!(info.caps() & (FI_MSG | FI_TAGGED), FI_MSG | FI_TAGGED);
        assert_eq!(info.addr_format(), FI_SOCKADDR_IN);
        // A `sockaddr_in`: family, port, 127.0.0.1.
        assert_eq!(info.src_addr().len(), 16);
        assert_eq!(info.src_addr()[4..8], [127, 0, 0, 1]);
        assert!(info.inject_size() > 0);
        assert!(!info.domain_name().is_empty() && !info.fabric_name().is_empty());
    }
    let other = Library::load(library.path().expect("it was loaded")).expect("once more");
    let theirs = rdm_hints(&other, &provider);
    let refused = library.query(None, None, 0, Some(&theirs));
    assert_eq!(refused.expect_err("another library's hints"), FI_EINVAL);
    let refused = other.fabric(list.first().expect("an offer"));
    assert_eq!(refused.expect_err("another library's offer"), FI_EINVAL);

    let mut hints = rdm_hints(library, "none");
    let none = library.query(None, None, 0, Some(&hints));
    assert_eq!(none.expect_err("there is no such provider"), FI_ENODATA);
    assert!(hints.set_provider("a\0b").is_err());
    hints.set_provider(&provider).expect("a C string");
    assert!(library.query(None, None, 0, Some(&hints)).is_ok());
}

pub(crate) fn an_offer_can_be_kept() {
    let Some(library) = real() else { return };
    let (provider, list) = rdm(library);
    let kept = list
        .keep(list.first().expect("an offer"))
        .expect("there is memory");
    let (domain, address) = {
        let first = list.first().expect("an offer");
        (first.domain_name().into_owned(), first.src_addr().to_vec())
    };
    drop(list);
    assert_eq!(kept.iter().count(), 1);
    let info = kept.first().expect("an offer");
    assert_eq!(info.provider(), *provider);
    assert_eq!(info.domain_name(), *domain);
    assert_eq!(info.src_addr(), address);
    assert!(info.max_msg_size() > 1 << 20);
}

pub(crate) fn a_message_goes_from_endpoint_to_endpoint() {
    let Some(library) = real() else { return };
    let (provider, list) = rdm(library);
    // A kept copy, like that of a port; the newer members that it lacks must not matter.
    let list = list
        .keep(list.first().expect("an offer"))
        .expect("there is memory");
    let info = list.first().expect("an offer");
    let open = Open::new(library, info);
    let (one, two) = (open.endpoint(info), open.endpoint(info));
    let address = name(two);
    let mut peer: fi_addr_t = FI_ADDR_NOTAVAIL;
    // SAFETY: an open vector; one address of the format the domain has.
    let inserted = unsafe {
        fi_av_insert(
            open.av,
            address.as_ptr().cast(),
            1,
            &raw mut peer,
            0,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(inserted, 1);
    let mut text = [0_u8; 32];
    let mut received = fi_context2::EMPTY;
    let context = (&raw mut received).cast();
    let none = std::ptr::null_mut();
    // SAFETY: a buffer that lives until the endpoint is closed.
    let posted = unsafe {
        let (start, len) = (text.as_mut_ptr().cast(), text.len());
        fi_trecv(two, start, len, none, FI_ADDR_UNSPEC, 0x42, 0, context)
    };
    assert_eq!(posted, 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    // SAFETY: injected, so the bytes are copied.
    while unsafe { fi_tinject(one, b"hello".as_ptr().cast(), 5, peer, 0x42) } != 0 {
        open.read_nothing();
        assert!(
            Instant::now() < deadline,
            "{provider}: the send is not taken"
        );
    }
    let entry = loop {
        if let Some(entry) = open.read() {
            break entry;
        }
        assert!(Instant::now() < deadline, "{provider}: nothing arrives");
    };
    assert_eq!(entry.op_context, context);
    assert_eq!(entry.len, 5);
    assert_eq!(entry.flags & (FI_RECV | FI_TAGGED), FI_RECV | FI_TAGGED);
    assert_eq!(&text[..5], b"hello");

    // A cancelled receive ends as an error, with its context.
    // SAFETY: as above.
    let posted = unsafe {
        let (start, len) = (text.as_mut_ptr().cast(), text.len());
        fi_trecv(two, start, len, none, FI_ADDR_UNSPEC, 0x43, 0, context)
    };
    assert_eq!(posted, 0);
    // SAFETY: an open endpoint.
    assert_eq!(unsafe { fi_cancel(two, context) }, 0);
    let error = open.read_error(deadline);
    assert_eq!(error.op_context, context);
    assert_eq!(error.err, FI_ECANCELED);
    assert_eq!(error.src_addr, FI_ADDR_NOTAVAIL);
    // SAFETY: an open vector, and an address of it.
    assert_eq!(unsafe { fi_av_remove(open.av, &raw mut peer, 1, 0) }, 0);
    for endpoint in [one, two] {
        // SAFETY: open, and not used any more.
        assert_eq!(unsafe { fi_close(endpoint.cast()) }, 0);
    }
    drop(open);
    println!("  {provider}");
}

/// A fabric, a domain, a queue and an address vector.
struct Open {
    fabric: *mut fid_fabric,
    domain: *mut fid_domain,
    cq: *mut fid_cq,
    av: *mut fid_av,
}

impl Open {
    fn new(library: &Library, info: Info<'_>) -> Self {
        let none = std::ptr::null_mut();
        let fabric = library.fabric(info).expect("the fabric opens").as_ptr();
        let mut domain = std::ptr::null_mut();
        // SAFETY: an open fabric, and an offer of it.
        let code = unsafe { fi_domain(fabric, info.as_ptr(), &raw mut domain, none) };
        assert_eq!(code, 0);
        let mut cq = std::ptr::null_mut();
        let mut attr = fi_cq_attr {
            format: FI_CQ_FORMAT_TAGGED,
            wait_obj: FI_WAIT_FD,
            ..fi_cq_attr::EMPTY
        };
        // SAFETY: an open domain.
        let code = unsafe { fi_cq_open(domain, &raw mut attr, &raw mut cq, none) };
        assert_eq!(code, 0);
        let mut fd = -1;
        // SAFETY: an open queue with a descriptor.
        let code = unsafe { fi_getwait(cq.cast(), &raw mut fd) };
        assert!(code == 0 && fd >= 0, "{code} {fd}");
        let mut queue: *mut fid = cq.cast();
        // SAFETY: an open fabric, and one object of it.
        let code = unsafe { fi_trywait(fabric, &raw mut queue, 1) };
        assert_eq!(code, 0, "an empty queue may be slept on");
        let mut av = std::ptr::null_mut();
        let mut attr = fi_av_attr::EMPTY;
        // SAFETY: an open domain.
        let code = unsafe { fi_av_open(domain, &raw mut attr, &raw mut av, none) };
        assert_eq!(code, 0);
        Self {
            fabric,
            domain,
            cq,
            av,
        }
    }

    fn endpoint(&self, info: Info<'_>) -> *mut fid_ep {
        let mut ep = std::ptr::null_mut();
        // SAFETY: an open domain, and the offer it came from.
        let code = unsafe {
            fi_endpoint(
                self.domain,
                info.as_ptr(),
                &raw mut ep,
                std::ptr::null_mut(),
            )
        };
        assert_eq!(code, 0);
        // SAFETY: open, and not enabled yet.
        let code = unsafe { fi_ep_bind(ep, self.cq.cast(), FI_TRANSMIT | FI_RECV) };
        assert_eq!(code, 0);
        // SAFETY: as above.
        assert_eq!(unsafe { fi_ep_bind(ep, self.av.cast(), 0) }, 0);
        let least: usize = 512;
        // SAFETY: a number of the option's type.
        let code = unsafe {
            let value = (&raw const least).cast();
            fi_setopt(
                ep,
                FI_OPT_ENDPOINT,
                FI_OPT_MIN_MULTI_RECV,
                value,
                size_of::<usize>(),
            )
        };
        assert_eq!(code, 0);
        let (mut value, mut len) = (0_usize, size_of::<usize>());
        // SAFETY: room for a number of the option's type.
        let code = unsafe {
            let value = (&raw mut value).cast();
            fi_getopt(
                ep,
                FI_OPT_ENDPOINT,
                FI_OPT_MIN_MULTI_RECV,
                value,
                &raw mut len,
            )
        };
        assert_eq!((code, value, len), (0, least, size_of::<usize>()));
        // SAFETY: bound to all it needs.
        assert_eq!(unsafe { fi_enable(ep) }, 0);
        ep
    }

    fn read(&self) -> Option<fi_cq_tagged_entry> {
        // SAFETY: plain numbers and pointers.
        let mut entry: fi_cq_tagged_entry = unsafe { std::mem::zeroed() };
        // SAFETY: an open queue, and room for one entry of its format.
        let count = unsafe { fi_cq_read(self.cq, (&raw mut entry).cast(), 1) };
        match count {
            1 => Some(entry),
            count => {
                assert_eq!(count, -(FI_EAGAIN as isize));
                None
            }
        }
    }

    /// Lets the provider work while a send is not accepted.
    fn read_nothing(&self) {
        assert!(self.read().is_none());
    }

    fn read_error(&self, deadline: Instant) -> fi_cq_err_entry {
        // SAFETY: plain numbers and pointers.
        let mut entry: fi_cq_tagged_entry = unsafe { std::mem::zeroed() };
        // SAFETY: an open queue, and room for one entry of its format.
        while unsafe { fi_cq_read(self.cq, (&raw mut entry).cast(), 1) } != -(FI_EAVAIL as isize) {
            assert!(Instant::now() < deadline, "no error");
        }
        let mut error = fi_cq_err_entry {
            src_addr: 5,
            ..fi_cq_err_entry::EMPTY
        };
        // SAFETY: an open queue, and a whole entry.
        let count = unsafe { fi_cq_readerr(self.cq, &raw mut error, 0) };
        assert_eq!(count, 1);
        let mut buffer = [0; 128];
        // SAFETY: an open queue, its error, and room for words.
        let words = unsafe {
            let (start, len) = (buffer.as_mut_ptr(), buffer.len());
            fi_cq_strerror(self.cq, error.prov_errno, error.err_data, start, len)
        };
        assert!(!words.is_null());
        // SAFETY: a C string until the next call.
        assert!(!unsafe { CStr::from_ptr(words) }.is_empty());
        error
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let fids: [*mut fid; 4] = [
            self.cq.cast(),
            self.av.cast(),
            self.domain.cast(),
            self.fabric.cast(),
        ];
        for object in fids {
            // SAFETY: open, and nothing opened from it is.
            assert_eq!(unsafe { fi_close(object) }, 0);
        }
    }
}

fn name(ep: *mut fid_ep) -> Vec<u8> {
    let mut address = vec![0_u8; 1];
    let mut len = address.len();
    // SAFETY: an open endpoint, and as much room as it is told.
    let code = unsafe { fi_getname(ep, address.as_mut_ptr().cast(), &raw mut len) };
    assert_eq!(code, -FI_ETOOSMALL);
    address.resize(len, 0);
    // SAFETY: as above.
    let code = unsafe { fi_getname(ep, address.as_mut_ptr().cast(), &raw mut len) };
    assert_eq!(code, 0);
    address.truncate(len);
    address
}
