//! A small message through shared memory makes no system call and allocates nothing.

use crate::counting::allocations;
use crate::own_process::in_own_process;
use mx_port_local::LocalPort;
use mx_proto::port::{Body, HeaderBytes, LinkControl, Port, Sent};
use mx_proto::{Clock, LinkId, Source};
use mx_sim::Polled;
use mx_sim::tell_all;
use mx_sim::{Ear, Hearing, VirtualClock, header_of};
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// Adds up the values that arrive.
#[derive(Default)]
struct Sum {
    link: Option<LinkId>,
    packets: u64,
    total: u64,
}

impl Ear for Sum {
    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, _: &HeaderBytes, body: &B) {
        let mut bytes = [0; 8];
        body.copy_to(0, &mut bytes);
        self.link = Some(link);
        self.packets += 1;
        self.total += u64::from_le_bytes(bytes);
    }
}

/// A port with a link to itself.
struct Talker {
    port: LocalPort,
    link: LinkId,
    sink: Sum,
}

impl Talker {
    fn new(endpoint: u32) -> Self {
        let board = std::process::id();
        let mut port = LocalPort::open(3, board, endpoint).unwrap();
        let link = port
            .connect_to(board, endpoint, VirtualClock::default().now())
            .unwrap();
        let mut this = Self {
            port,
            link,
            sink: Sum::default(),
        };
        while this.port.stats().initiated == 0 {
            this.port.note_control();
            this.poll();
        }
        this.exchange(1);
        this.sink = Sum {
            link: this.sink.link,
            ..Sum::default()
        };
        this
    }

    fn poll(&mut self) -> bool {
        Polled::<Vec<u8>>::poll(
            &mut self.port,
            VirtualClock::default().now(),
            64,
            &mut Hearing(&mut self.sink),
        )
    }

    fn poll_active(&mut self) -> bool {
        self.port.begin_active(64)
            && tell_all::<Vec<u8>, _, _>(&mut self.port, &mut Hearing(&mut self.sink))
    }

    fn send(&mut self, link: LinkId, body: &[u8]) {
        let header = header_of(0, body.len());
        let body = Body::<Vec<u8>>::Bytes(body);
        assert_eq!(
            Port::send(&mut self.port, link, &header, body),
            Ok(Sent::Whole)
        );
    }

    /// Passes a packet in each direction.
    fn exchange(&mut self, value: u64) {
        self.send(self.link, &value.to_le_bytes());
        while !self.poll_active() {}
        let back = self.sink.link.unwrap();
        self.send(back, &value.to_le_bytes());
        while !self.poll_active() {}
    }
}

#[test]
fn small_messages_allocate_nothing() {
    let mut talker = Talker::new(1);
    let before = allocations();
    for value in 0..100_000 {
        talker.exchange(value);
    }
    assert_eq!(allocations() - before, 0);
    assert_eq!(talker.sink.packets, 200_000);
    assert_eq!(talker.sink.total, 99_999 * 100_000);
}

/// The result of the thread without system calls; negative while there is none.
static VERDICT: AtomicI32 = AtomicI32::new(-1);

#[test]
fn small_messages_make_no_system_call() {
    in_own_process!();
    let talker = Talker::new(2);
    // In this process, because a child of fork does not have the port's memory.
    std::thread::spawn(move || without_system_calls(talker));
    let until = Instant::now() + Duration::from_secs(60);
    while VERDICT.load(Ordering::Acquire) < 0 {
        assert!(Instant::now() < until, "a system call was made");
        std::thread::sleep(Duration::from_millis(5));
    }
    match VERDICT.load(Ordering::Acquire) {
        // A sandbox can forbid strict mode; the benchmark's strace shows the same.
        77 => eprintln!("skipped: strict mode is not available here"),
        verdict => assert_eq!(verdict, 0),
    }
}

/// Runs the exchange in a thread that a system call ends at once.
fn without_system_calls(mut talker: Talker) {
    // From here on any call except read, write and exit kills the thread.
    // SAFETY: plain system call.
    let strict = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
    if strict == 0 {
        // Half as many polls as the port makes before it looks at its descriptors anyway.
        for value in 0..16_000 {
            talker.exchange(value);
        }
    }
    let verdict = match strict {
        0 => i32::from(talker.sink.packets != 32_000),
        _ => 77,
    };
    VERDICT.store(verdict, Ordering::Release);
    // SAFETY: ends this thread at once; its resources remain, because closing them would be a
    // system call.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}
