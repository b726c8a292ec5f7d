//! No heap allocation for a small message in steady state, expected or not, on either side.
//!
//! Two processes: this test starts itself again as the other side. Both count what the library
//! allocates while ten thousand messages go to and fro through the C entry points, and as many requests. The helper thread
//! is off: when it and the application meet on the lock for the first time, the lock makes room for
//! both in a table of the process's, once a thread and not once a message.

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

/// The number of operations that are under way.
fn posted(answer: Result<i32, Box<Error>>) -> usize {
    let answer = answer.expect("a post");
    usize::from(answer == 0)
}

/// Posts a send; whether it is still under way.
fn send(to: Addr, data: &[u8], unexpected: bool) -> usize {
    let kind = if unexpected {
        PostKind::SendUnexpected
    } else {
        PostKind::Send
    };
    let mut id = 0;
    let call = call(&mut id, to);
    // SAFETY: every caller waits before `data` goes.
    posted(unsafe { call.send_one(kind, data.as_ptr().cast(), data.len() as i64) })
}

fn recv(from: Addr, data: &mut [u8]) -> usize {
    let (mut id, mut size) = (0, 0);
    let call = call(&mut id, from);
    // SAFETY: every caller waits before `data` goes.
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

/// Leaves a send to be waited for together with the receive that is posted.
fn wait_sent(under_way: usize, pending: &mut usize) {
    *pending += under_way;
}

/// Waits for an unexpected message, and gives its sender.
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

/// The other side: answers, then sends back how often it allocated.
fn serve(address: &str) {
    start(Some(address));
    println!("ready");
    let client = take_unexpected();
    // The next receive is posted before the answer goes out: a message that comes before its
    // receive is kept, and that takes memory.
    let mut buffers = [[0u8; 8]; 2];
    let mut before = 0;
    let mut pending = recv(client, &mut buffers[0]);
    for round in 0..WARM_UP + COUNTED {
        if round == WARM_UP {
            before = allocations();
        }
        // Its buffer comes from malloc, and is the host's: that one is not counted.
        assert_eq!(take_unexpected(), client);
        wait(pending);
        pending = recv(client, &mut buffers[(round + 1) % 2]);
        rest(round, 50);
        wait_sent(send(client, &buffers[round % 2], false), &mut pending);
    }
    let allocated = allocations() - before;
    // Told when it is asked for, so that it does not surprise the client.
    wait(pending);
    wait(send(client, &allocated.to_le_bytes(), false));
    // SAFETY: initialised.
    unsafe { lifecycle::BMI_mx_finalize() };
}

/// Now and then while warming up, so long that the other side goes to sleep, and once until timers are due: what
/// these need is there afterwards, whatever else runs on the processors.
fn rest(round: usize, at: usize) {
    if round < WARM_UP && round % 100 == at {
        let long = round == WARM_UP / 2 + at;
        sleep(Duration::from_millis(if long { 2500 } else { 5 }));
    }
}

/// A server, its address, and its output, which it must be able to go on writing.
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
        // The test harness may put its own words before it on the same line.
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
