//! A scripted provider, and how objects handle its answers.
//!
//! Its objects only record calls and return the answers of a script in order; when the script is empty, they succeed.

use super::*;
use crate::RdmOptions;
use crate::provider::Choice;
use libfabric_fake::{Fake, Shape};
use libfabric_sys::Functions;
use libfabric_sys::abi::{
    FI_ADDR_NOTAVAIL, FI_EAGAIN, FI_EAVAIL, FI_EBUSY, FI_ENOKEY, FI_ENOMEM, FI_ENOSYS, FI_EOVERRUN,
    FI_ETOOSMALL, FI_ETRUNC, FI_GETWAIT, FI_READ, FI_WAIT_FD, fi_cq_err_entry, fi_cq_tagged_entry,
    fi_fabric_attr, fi_info, fi_ops, fi_ops_av, fi_ops_cm, fi_ops_cq, fi_ops_domain, fi_ops_ep,
    fi_ops_fabric, fi_ops_mr, fid_cq, fid_ep, fid_mr,
};
use libfabric_sys::abi::{FI_EOTHER, fi_av_attr, fid, fid_av, fid_domain, fid_fabric};
use std::collections::{HashMap, VecDeque};
use std::ptr::null_mut;

thread_local! {
    static SCRIPT: RefCell<HashMap<&'static str, VecDeque<isize>>> = RefCell::default();
    static CALLS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// Sets the answers of the next calls of `name`.
fn script(name: &'static str, answers: &[isize]) {
    SCRIPT.with_borrow_mut(|script| script.entry(name).or_default().extend(answers));
}

/// Records a call and returns its answer; 0 if the script has none.
fn answer(name: &'static str) -> isize {
    answer_or(name, 0)
}

fn answer_or(name: &'static str, usual: isize) -> isize {
    CALLS.with_borrow_mut(|calls| calls.push(name));
    let scripted = |script: &mut HashMap<_, VecDeque<_>>| script.get_mut(name)?.pop_front();
    SCRIPT.with_borrow_mut(scripted).unwrap_or(usual)
}

/// Returns the calls in `wanted` recorded since the last time.
fn calls(wanted: &[&str]) -> Vec<&'static str> {
    let mut calls = CALLS.with_borrow_mut(std::mem::take);
    calls.retain(|call| wanted.contains(call));
    calls
}

/// Object of the scripted provider. Its context holds the index of its name.
fn object(name: &'static str) -> fid {
    fid {
        fclass: 0,
        context: NAMES.iter().position(|(other, _)| *other == name).unwrap() as *mut c_void,
        ops: (&raw const OPS).cast_mut(),
    }
}

/// Names of objects, and of closing them.
const NAMES: [(&str, &str); 6] = [
    ("fabric", "close fabric"),
    ("domain", "close domain"),
    ("cq", "close cq"),
    ("av", "close av"),
    ("ep", "close ep"),
    ("mr", "close mr"),
];

/// Writes `object` to an output, unless the answer is an error.
unsafe fn give<T>(name: &'static str, out: *mut *mut T, object: T) -> c_int {
    let result = answer(name) as c_int;
    if result == 0 {
        // SAFETY: the caller's output. The few objects of a test are never freed.
        unsafe { out.write(Box::leak(Box::new(object))) };
    }
    result
}

static OPS: fi_ops = {
    unsafe extern "C" fn close(object: *mut fid) -> c_int {
        // SAFETY: an object of the scripted provider.
        let index = unsafe { (*object).context } as usize;
        answer(NAMES[index].1) as c_int
    }
    unsafe extern "C" fn bind(object: *mut fid, _: *mut fid, _: u64) -> c_int {
        // SAFETY: as above.
        let index = unsafe { (*object).context } as usize;
        answer(["", "", "", "", "bind ep", "bind mr"][index]) as c_int
    }
    unsafe extern "C" fn control(object: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
        if command == FI_GETWAIT {
            // SAFETY: the output of this command.
            unsafe { arg.cast::<c_int>().write(5) };
            return answer("getwait") as c_int;
        }
        // SAFETY: as above.
        let index = unsafe { (*object).context } as usize;
        answer(["", "", "", "", "enable ep", "enable mr"][index]) as c_int
    }
    fi_ops {
        close: Some(close),
        bind: Some(bind),
        control: Some(control),
        ..fi_ops::EMPTY
    }
};

unsafe extern "C" fn fabric(
    _: *mut fi_fabric_attr,
    out: *mut *mut fid_fabric,
    _: *mut c_void,
) -> c_int {
    let object = fid_fabric {
        fid: object("fabric"),
        ops: (&raw const FABRIC).cast_mut(),
        api_version: 0,
    };
    // SAFETY: the caller's output.
    unsafe { give("fabric", out, object) }
}

static FABRIC: fi_ops_fabric = {
    unsafe extern "C" fn domain(
        _: *mut fid_fabric,
        _: *mut fi_info,
        out: *mut *mut fid_domain,
        _: *mut c_void,
    ) -> c_int {
        let object = fid_domain {
            fid: object("domain"),
            ops: (&raw const DOMAIN).cast_mut(),
            mr: (&raw const MR).cast_mut(),
        };
        // SAFETY: the caller's output.
        unsafe { give("domain", out, object) }
    }
    unsafe extern "C" fn trywait(_: *mut fid_fabric, _: *mut *mut fid, _: c_int) -> c_int {
        answer("trywait") as c_int
    }
    fi_ops_fabric {
        domain: Some(domain),
        trywait: Some(trywait),
        ..fi_ops_fabric::EMPTY
    }
};

static DOMAIN: fi_ops_domain = {
    unsafe extern "C" fn av_open(
        _: *mut fid_domain,
        _: *mut fi_av_attr,
        out: *mut *mut fid_av,
        _: *mut c_void,
    ) -> c_int {
        let object = fid_av {
            fid: object("av"),
            ops: (&raw const AV).cast_mut(),
        };
        // SAFETY: the caller's output.
        unsafe { give("av", out, object) }
    }
    unsafe extern "C" fn cq_open(
        _: *mut fid_domain,
        attr: *mut libfabric_sys::abi::fi_cq_attr,
        out: *mut *mut fid_cq,
        _: *mut c_void,
    ) -> c_int {
        let object = fid_cq {
            fid: object("cq"),
            ops: (&raw const CQ).cast_mut(),
        };
        // SAFETY: the caller's attributes.
        let name = match unsafe { (*attr).wait_obj } {
            FI_WAIT_FD => "cq with fd",
            _ => "cq",
        };
        // SAFETY: the caller's output.
        unsafe { give(name, out, object) }
    }
    unsafe extern "C" fn endpoint(
        _: *mut fid_domain,
        _: *mut fi_info,
        out: *mut *mut fid_ep,
        _: *mut c_void,
    ) -> c_int {
        let object = fid_ep {
            fid: object("ep"),
            ops: (&raw const EP).cast_mut(),
            cm: (&raw const CM).cast_mut(),
            msg: null_mut(),
            rma: null_mut(),
            tagged: null_mut(),
        };
        // SAFETY: the caller's output.
        unsafe { give("ep", out, object) }
    }
    fi_ops_domain {
        av_open: Some(av_open),
        cq_open: Some(cq_open),
        endpoint: Some(endpoint),
        ..fi_ops_domain::EMPTY
    }
};

static MR: fi_ops_mr = {
    unsafe extern "C" fn reg(
        _: *mut fid,
        _: *const c_void,
        _: usize,
        _: u64,
        _: u64,
        key: u64,
        _: u64,
        out: *mut *mut fid_mr,
        _: *mut c_void,
    ) -> c_int {
        let object = fid_mr {
            fid: object("mr"),
            mem_desc: null_mut(),
            key,
        };
        // SAFETY: the caller's output.
        unsafe { give("mr", out, object) }
    }
    fi_ops_mr {
        reg: Some(reg),
        ..fi_ops_mr::EMPTY
    }
};

static EP: fi_ops_ep = {
    unsafe extern "C" fn setopt(
        _: *mut fid,
        _: c_int,
        _: c_int,
        _: *const c_void,
        _: usize,
    ) -> c_int {
        answer("setopt") as c_int
    }
    fi_ops_ep {
        setopt: Some(setopt),
        ..fi_ops_ep::EMPTY
    }
};

static CM: fi_ops_cm = {
    unsafe extern "C" fn getname(_: *mut fid, _: *mut c_void, len: *mut usize) -> c_int {
        // SAFETY: the caller's length.
        unsafe { len.write(answer_or("name length", 8) as usize) };
        answer("getname") as c_int
    }
    fi_ops_cm {
        getname: Some(getname),
        ..fi_ops_cm::EMPTY
    }
};

static CQ: fi_ops_cq = {
    unsafe extern "C" fn read(_: *mut fid_cq, buf: *mut c_void, count: usize) -> isize {
        let result = answer_or("read", -(FI_EAGAIN as isize));
        if let Ok(given) = usize::try_from(result) {
            // SAFETY: at most as many as fit, whatever is claimed.
            unsafe { std::ptr::write_bytes(buf.cast::<fi_cq_tagged_entry>(), 0, given.min(count)) };
        }
        result
    }
    unsafe extern "C" fn readerr(_: *mut fid_cq, buf: *mut fi_cq_err_entry, _: u64) -> isize {
        // SAFETY: the caller's entry.
        unsafe { (*buf).err = answer("err") as c_int };
        answer_or("readerr", 1)
    }
    fi_ops_cq {
        read: Some(read),
        readerr: Some(readerr),
        ..fi_ops_cq::EMPTY
    }
};

static AV: fi_ops_av = {
    unsafe extern "C" fn insert(
        _: *mut fid_av,
        addr: *const c_void,
        count: usize,
        peer: *mut u64,
        _: u64,
        _: *mut c_void,
    ) -> c_int {
        assert_eq!(count, 1);
        // A provider may read as many bytes as its longest address has.
        // SAFETY: the caller guarantees as many.
        let bytes = unsafe { std::slice::from_raw_parts(addr.cast::<u8>(), 256 + 1) };
        assert_eq!(bytes[256], 0);
        // SAFETY: the caller's output.
        unsafe { peer.write(answer_or("peer", 3) as u64) };
        answer_or("insert", 1) as c_int
    }
    fi_ops_av {
        insert: Some(insert),
        ..fi_ops_av::EMPTY
    }
};

fn try_open(shape: Shape) -> Result<Domain, FabricError> {
    let fake = Fake::new(shape, 1);
    let offers = *fake.library().functions();
    // SAFETY: the scripted fabric has all the tables that are called here.
    let library = unsafe { Library::from_functions(Functions { fabric, ..offers }) };
    let choice = Choice::make(&library, &RdmOptions::default(), Ok).unwrap();
    Domain::open(Arc::new(library), &choice.info, choice.plan.terms.clone())
}

fn open() -> Domain {
    try_open(Shape::cxi()).unwrap()
}

/// Registers a byte that is never touched.
fn register(domain: &Domain, ep: Option<&Ep>) -> Result<Mr, FabricError> {
    static BYTE: u8 = 0;
    let start = (&raw const BYTE).cast_mut();
    // SAFETY: a static.
    unsafe { domain.register(start, 1, FI_READ, ep) }
}

const CLOSES: [&str; 6] = [
    "close mr",
    "close ep",
    "close av",
    "close cq",
    "close domain",
    "close fabric",
];

#[test]
fn everything_is_closed_in_order_whatever_goes_first() {
    for first in 0..3 {
        let domain = open();
        let ep = domain.endpoint(Role::Main).unwrap();
        let mr = register(&domain, Some(&ep)).unwrap();
        calls(&[]);
        match first {
            0 => drop((domain, ep, mr)),
            1 => drop((ep, domain, mr)),
            _ => drop((mr, ep, domain)),
        }
        assert_eq!(calls(&CLOSES), CLOSES);
    }
}

#[test]
fn what_was_opened_before_a_failure_is_closed() {
    let no_memory = -(FI_ENOMEM as isize);
    for (failing, what, closed) in [
        ("fabric", "fi_fabric", &CLOSES[6..]),
        ("domain", "fi_domain", &CLOSES[5..]),
        ("av", "fi_av_open", &CLOSES[3..]),
    ] {
        // If there is an alternative, that fails as well.
        script(failing, &[no_memory, no_memory]);
        let error = try_open(Shape::cxi()).unwrap_err();
        assert_eq!((error.what, error.code), (what, FI_ENOMEM));
        assert_eq!(calls(&CLOSES), closed);
        SCRIPT.take();
    }
    let domain = open();
    for (failing, what, closed) in [
        ("ep", "fi_endpoint", 0),
        ("bind ep", "fi_ep_bind", 1),
        ("setopt", "fi_setopt", 1),
        ("enable ep", "fi_enable", 1),
        ("getname", "fi_getname", 1),
    ] {
        script(failing, &[no_memory]);
        let error = domain.endpoint(Role::Main).unwrap_err();
        assert_eq!((error.what, error.code), (what, FI_ENOMEM));
        assert_eq!(calls(&CLOSES).len(), closed);
    }
}

#[test]
fn a_queue_that_claims_more_than_there_is_room_for_is_broken() {
    let domain = open();
    let mut events = Vec::new();
    script("read", &[3, 7]);
    assert_eq!(domain.read(&mut events, 10), Ok(3));
    assert_eq!((domain.read(&mut events, 7), events.len()), (Ok(7), 10));
    for claimed in [8, isize::MAX] {
        script("read", &[claimed]);
        let error = domain.read(&mut events, 7).unwrap_err();
        assert_eq!((error.what, error.code), ("fi_cq_read", FI_EOVERRUN));
    }
    assert_eq!(events.len(), 10);
}

#[test]
fn an_error_of_the_queue_comes_after_what_was_read_before() {
    let domain = open();
    let mut events = Vec::new();
    let broken = -(FI_EOVERRUN as isize);
    script("read", &[64, broken, broken]);
    assert_eq!(domain.read(&mut events, 100), Ok(64));
    assert_eq!(domain.read(&mut events, 100).unwrap_err().code, FI_EOVERRUN);
    script("read", &[isize::MIN]);
    assert!(domain.read(&mut events, 100).is_err());
}

#[test]
fn errors_are_positive_whatever_the_provider_says() {
    let domain = open();
    let available = -(FI_EAVAIL as isize);
    let truncated = FI_ETRUNC as isize;
    script("read", &[available; 4]);
    script("err", &[truncated, -truncated, 0, i32::MIN as isize]);
    let mut events = Vec::new();
    assert_eq!(domain.read(&mut events, 10), Ok(4));
    let numbers: Vec<_> = events
        .iter()
        .map(|event| event.outcome.unwrap_err())
        .collect();
    assert_eq!(numbers, [FI_ETRUNC, FI_ETRUNC, FI_EOTHER, FI_EOTHER]);
}

#[test]
fn endless_error_announcements_end_the_queue() {
    let domain = open();
    let available = -(FI_EAVAIL as isize);
    let mut events = Vec::new();
    script("read", &[available; 1000]);
    script("readerr", &[-(FI_EAGAIN as isize); 1000]);
    for _ in 0..999 {
        assert_eq!(domain.read(&mut events, 10), Ok(0));
    }
    let error = domain.read(&mut events, 10).unwrap_err();
    assert_eq!((error.what, error.code), ("fi_cq_readerr", FI_EAVAIL));
    assert!(events.is_empty());
    // A failure of readerr itself ends it at once.
    script("read", &[available]);
    script("readerr", &[-(FI_EINVAL as isize)]);
    assert_eq!(domain.read(&mut events, 10).unwrap_err().code, FI_EINVAL);
}

#[test]
fn without_a_descriptor_that_works_the_queue_is_polled() {
    let missing = [-(FI_ENOSYS as isize); 2];
    for failing in ["cq with fd", "getwait", "trywait"] {
        script(failing, &missing);
        calls(&[]);
        let domain = open();
        assert_eq!(domain.params().wait, Wait::Poll, "{failing}");
        assert_eq!((domain.wait_fd(), domain.may_sleep()), (None, false));
        drop(domain);
        let closed = calls(&["close cq"]).len();
        assert_eq!(closed, if failing == "cq with fd" { 1 } else { 2 });
        SCRIPT.take();
    }
    let domain = open();
    assert_eq!(
        (domain.params().wait, domain.wait_fd()),
        (Wait::Fd, Some(5))
    );
}

#[test]
fn a_descriptor_that_stops_working_is_no_longer_slept_on() {
    let domain = open();
    script("trywait", &[0, -(FI_EAGAIN as isize), 0]);
    assert!(domain.may_sleep());
    assert!(!domain.may_sleep());
    assert!(domain.may_sleep());
    assert_eq!(domain.wait_fd(), Some(5));
    script("trywait", &[-(FI_EINVAL as isize)]);
    assert!(!domain.may_sleep());
    assert_eq!(domain.wait_fd(), None);
    assert!(!domain.may_sleep());
}

#[test]
fn keys_of_ours_are_free_ones() {
    let domain = try_open(Shape {
        mr_mode: libfabric_sys::abi::FI_MR_ALLOCATED,
        ..Shape::cxi()
    })
    .unwrap();
    let taken = -(FI_ENOKEY as isize);
    assert_eq!(register(&domain, None).unwrap().key(), 1);
    script("mr", &[taken, taken]);
    assert_eq!(register(&domain, None).unwrap().key(), 4);
    script("mr", &[taken; 64]);
    let error = register(&domain, None).unwrap_err();
    assert_eq!((error.what, error.code), (REGISTER, FI_ENOKEY));
    script("mr", &[-(FI_ENOMEM as isize)]);
    assert_eq!(register(&domain, None).unwrap_err().code, FI_ENOMEM);
}

#[test]
fn registrations_of_an_endpoint_are_bound_and_enabled() {
    let domain = open();
    let ep = domain.endpoint(Role::Main).unwrap();
    calls(&[]);
    let mr = register(&domain, Some(&ep)).unwrap();
    assert_eq!(calls(&["bind mr", "enable mr"]), ["bind mr", "enable mr"]);
    assert_eq!(ep.close(), Err(FI_EBUSY));
    assert_eq!(calls(&CLOSES), [""; 0]);
    drop(mr);
    assert_eq!(calls(&CLOSES), ["close mr", "close ep"]);
    assert_eq!(register(&domain, None).unwrap_err().what, "fi_mr_bind");
    assert_eq!(calls(&CLOSES), ["close mr"]);
}

#[test]
fn unclosed_objects_are_retried_before_their_parents() {
    let domain = open();
    let ep = domain.endpoint(Role::Main).unwrap();
    let mr = register(&domain, Some(&ep)).unwrap();
    calls(&[]);
    let busy = -(FI_EBUSY as isize);
    script("close mr", &[busy, busy, busy]);
    script("close ep", &[busy]);
    let (mr, code) = mr.close().unwrap_err();
    assert_eq!((mr.key(), code), (0, FI_EBUSY));
    // The dropped registration is retried with its endpoint.
    drop(mr);
    assert_eq!(ep.close(), Err(FI_EBUSY));
    assert_eq!(
        calls(&CLOSES),
        ["close mr", "close mr", "close mr", "close ep"]
    );
    drop(domain);
    assert_eq!(calls(&CLOSES), CLOSES);
}

#[test]
fn what_has_come_is_read_before_its_endpoint_is_closed() {
    for role in [Role::Main, OWN] {
        let domain = open();
        let ep = domain.endpoint(role).unwrap();
        calls(&[]);
        script("read", &[1]);
        assert_eq!(ep.close(), Ok(()));
        assert_eq!(calls(&["read", "close ep"]), ["read", "read", "close ep"]);
    }
}

const OWN: Role = Role::Own {
    port: 0,
    entries: 256,
};

#[test]
fn a_queue_of_its_own_goes_with_its_endpoint() {
    let domain = open();
    calls(&[]);
    let ep = domain.endpoint(OWN).unwrap();
    assert_eq!(calls(&["cq with fd", "ep"]), ["cq with fd", "ep"]);
    assert_eq!((ep.wait_fd(), ep.may_sleep()), (Some(5), true));
    assert_eq!(ep.close(), Ok(()));
    assert_eq!(calls(&CLOSES), ["close ep", "close cq"]);
    // An open that fails half way leaves nothing open.
    script("enable ep", &[-(FI_ENOMEM as isize)]);
    assert!(domain.endpoint(OWN).is_err());
    assert_eq!(calls(&CLOSES), ["close ep", "close cq"]);
    // Both fail to close, and are retried in order.
    let ep = domain.endpoint(OWN).unwrap();
    let busy = -(FI_EBUSY as isize);
    script("close ep", &[busy]);
    script("close cq", &[busy]);
    assert_eq!(ep.close(), Err(FI_EBUSY));
    assert_eq!(calls(&CLOSES), ["close ep", "close cq"]);
    drop(domain);
    let rest = [
        "close ep",
        "close cq",
        "close av",
        "close cq",
        "close domain",
        "close fabric",
    ];
    assert_eq!(calls(&CLOSES), rest);
}

#[test]
fn an_endpoint_has_an_address_of_a_sane_length() {
    let domain = open();
    let name = |lengths: &[isize], answers: &[isize]| {
        script("name length", lengths);
        script("getname", answers);
        let ep = domain.endpoint(Role::Main);
        ep.map(|ep| ep.address().len()).map_err(|error| error.code)
    };
    let short = -(FI_ETOOSMALL as isize);
    assert_eq!(name(&[], &[]), Ok(8));
    assert_eq!(name(&[256], &[0]), Ok(256));
    assert_eq!(name(&[300, 300], &[short, 0]), Ok(300));
    assert_eq!(name(&[0], &[0]), Err(FI_EOTHER));
    assert_eq!(name(&[257], &[0]), Err(FI_EOTHER));
    assert_eq!(name(&[300, 301], &[short, short]), Err(FI_ETOOSMALL));
    assert_eq!(name(&[1 << 40], &[short]), Err(FI_ETOOSMALL));
    assert_eq!(name(&[100], &[short]), Err(FI_ETOOSMALL));
}

#[test]
fn an_address_counts_as_known_only_if_it_got_a_number() {
    let domain = open();
    let insert = |answer: isize, peer: u64| {
        script("insert", &[answer]);
        script("peer", &[peer as isize]);
        domain.insert(&[1; 256]).map_err(|error| error.code)
    };
    assert_eq!(insert(1, 0), Ok(0));
    assert_eq!(insert(1, 1 << 60), Ok(1 << 60));
    assert_eq!(insert(1, FI_ADDR_NOTAVAIL), Err(FI_EINVAL));
    assert_eq!(insert(0, 7), Err(FI_EINVAL));
    assert_eq!(insert(2, 7), Err(FI_EOTHER));
    assert_eq!(insert(-(FI_ENOMEM as isize), 7), Err(FI_ENOMEM));
    // Without av_remove in the tables, removing only logs.
    domain.remove(3);
}
