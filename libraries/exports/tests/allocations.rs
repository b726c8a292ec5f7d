//! No heap allocation for a small message in steady state, expected or not, on either side.
//!
//! Two processes: this test starts itself again as the other side. Both count the library's allocations while ten
//! thousand messages go to and fro through the C entry points, and as many requests. The helper thread is off: when it
//! and the application first meet on the lock, parking_lot allocates a table entry for each thread, once and not per
//! message.

#[path = "../../../testing/sim/fixtures/counting.rs"]
mod counting;

use bmi_exports::post::PostArgs;
use bmi_exports::{Error, address, lifecycle, memory, test};
use bmi_method::abi::constants::BMI_INIT_SERVER;
use bmi_method::abi::types::{bmi_method_addr, bmi_method_unexpected_info};
use bmi_method::instance::PostKind;
use counting::allocations;
use libc::c_void;
use std::ffi::CString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;
use std::thread::sleep;
use std::time::Duration;

const ADDRESS: &str = "BMI_MX_TEST_ALLOCATIONS_OF";
const WARM_UP: usize = 2_000;
const COUNTED: usize = 10_000;
const TAG: i32 = 5;

type Addr = *mut bmi_method_addr;

fn start(listen: Option<&str>) -> Addr {
    let (addr, flags) = match listen {
        Some(name) => (lookup(name), BMI_INIT_SERVER),
        None => (null_mut(), 0),
    };
    lifecycle::initialize(addr, 0, flags, None).expect("initialize");
    // SAFETY: initialised.
    unsafe { lifecycle::BMI_mx_open_context(0) };
    addr
}

fn lookup(name: &str) -> Addr {
    let name = CString::new(name).unwrap();
    // SAFETY: a C string.
    let addr = unsafe { address::BMI_mx_method_addr_lookup(name.as_ptr()) };
    assert!(!addr.is_null());
    addr
}

fn call(id: &mut i64, addr: Addr) -> PostArgs {
    PostArgs {
        id,
        addr,
        tag: TAG,
        class: 0,
        user_ptr: null_mut(),
        context_id: 0,
    }
}

/// Returns the number of operations that are pending.
fn posted(answer: Result<i32, Box<Error>>) -> usize {
    let answer = answer.expect("a post");
    usize::from(answer == 0)
}

/// Posts a send. Returns 1 if it is pending, else 0.
fn send(to: Addr, data: &[u8], unexpected: bool) -> usize {
    let kind = if unexpected {
        PostKind::SendUnexpected
    } else {
        PostKind::Send
    };
    let mut id = 0;
    let call = call(&mut id, to);
    // SAFETY: every caller waits before `data` is dropped.
    posted(unsafe { call.send_one(kind, data.as_ptr().cast(), data.len() as i64) })
}

fn recv(from: Addr, data: &mut [u8]) -> usize {
    let (mut id, mut size) = (0, 0);
    let call = call(&mut id, from);
    // SAFETY: every caller waits before `data` is dropped.
    posted(unsafe { call.receive_one(data.as_mut_ptr().cast(), data.len() as i64, &mut size) })
}

fn wait(mut pending: usize) {
    while pending > 0 {
        let (mut ids, mut errors, mut sizes) = ([0; 4], [0; 4], [0; 4]);
        let (mut users, mut count) = ([null_mut::<c_void>(); 4], 0);
        // SAFETY: every output has room for four.
        let rc = unsafe {
            test::BMI_mx_testcontext(
                4,
                ids.as_mut_ptr(),
                &mut count,
                errors.as_mut_ptr(),
                sizes.as_mut_ptr(),
                users.as_mut_ptr(),
                10,
                0,
            )
        };
        assert!(rc >= 0, "testcontext: {rc}");
        assert!(
            errors[..count as usize].iter().all(|error| *error == 0),
            "{errors:?}"
        );
        pending -= count as usize;
    }
}

/// Adds a send to the operations to wait for together with the posted receive.
fn wait_sent(under_way: usize, pending: &mut usize) {
    *pending += under_way;
}

/// Waits for an unexpected message. Returns its sender.
fn take_unexpected() -> Addr {
    let mut info = bmi_method_unexpected_info {
        error_code: 0,
        addr: null_mut(),
        buffer: null_mut(),
        size: 0,
        tag: 0,
    };
    let mut count = 0;
    while count == 0 {
        // SAFETY: room for one.
        unsafe { test::unexpected(1, &mut count, &mut info, 0, 1000) }.expect("a test");
    }
    // SAFETY: it came from testunexpected.
    unsafe { memory::BMI_mx_unexpected_free(info.buffer) };
    info.addr
}

/// Runs the other side: answers, then sends back its number of allocations.
fn serve(address: &str) {
    start(Some(address));
    println!("ready");
    let client = take_unexpected();
    // The next receive is posted before the answer is sent: a message that arrives before its receive is stored, which
    // takes memory.
    let mut buffers = [[0u8; 8]; 2];
    let mut before = 0;
    let mut pending = recv(client, &mut buffers[0]);
    for round in 0..WARM_UP + COUNTED {
        if round == WARM_UP {
            before = allocations();
        }
        // The buffer comes from malloc and belongs to the host, so it is not counted.
        assert_eq!(take_unexpected(), client);
        wait(pending);
        pending = recv(client, &mut buffers[(round + 1) % 2]);
        rest(round, 50);
        wait_sent(send(client, &buffers[round % 2], false), &mut pending);
    }
    let allocated = allocations() - before;
    // Sent only when asked for, so that it does not surprise the client.
    wait(pending);
    wait(send(client, &allocated.to_le_bytes(), false));
    // SAFETY: initialised.
    unsafe { lifecycle::BMI_mx_finalize() };
}

/// Pauses occasionally while warming up, so long that the other side goes to sleep, and once until timers are due: so
/// their allocations happen before counting begins, whatever else runs on the processors.
fn rest(round: usize, at: usize) {
    if round < WARM_UP && round % 100 == at {
        let long = round == WARM_UP / 2 + at;
        sleep(Duration::from_millis(if long { 2500 } else { 5 }));
    }
}

/// Starts a server. Returns its process, its address, and its output, which must stay open.
fn start_server() -> (Child, String, impl Iterator<Item = String>) {
    let program = std::env::current_exe().unwrap();
    for attempt in 0..20 {
        let id = 1024 + (std::process::id() * 37 + attempt * 1009) % 5_000;
        let address = format!("mx://local@localhost:{id}");
        let mut child = Command::new(&program)
            .args(["--exact", "small_messages_allocate_nothing", "--nocapture"])
            .env(ADDRESS, &address)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        // The test harness may print on the same line before it.
        if lines.any(|line| line.ends_with("ready")) {
            return (child, address, lines);
        }
        child.wait().unwrap();
    }
    panic!("no server could be started");
}

#[test]
fn small_messages_allocate_nothing() {
    // SAFETY: this is the only test of its process, and nothing has been started.
    unsafe { std::env::set_var("MX_HELPER", "off") };
    if let Ok(address) = std::env::var(ADDRESS) {
        return serve(&address);
    }
    let (mut child, address, _output) = start_server();
    start(None);
    let server = lookup(&address);
    wait(send(server, b"hello", true));
    let (data, mut back) = ([7u8; 8], [0u8; 8]);
    let mut before = 0;
    for round in 0..WARM_UP + COUNTED {
        if round == WARM_UP {
            before = allocations();
        }
        rest(round, 0);
        let pending = recv(server, &mut back) + send(server, &data, true);
        wait(pending + send(server, &data, false));
        assert_eq!(back, data);
    }
    let here = allocations() - before;
    let pending = recv(server, &mut back);
    wait(pending + send(server, &data, false));
    let there = u64::from_le_bytes(back);
    // SAFETY: initialised.
    unsafe { lifecycle::BMI_mx_finalize() };
    assert!(child.wait().unwrap().success());
    assert_eq!(
        (here, there),
        (0, 0),
        "allocations here and there in {COUNTED} round trips"
    );
}
