//! A small message through shared memory neither enters the kernel nor allocates.

#[path = "../../../mx-sim/fixtures/counting.rs"]
mod counting;

use counting::allocations;
use mx_port_local::LocalPort;
use mx_proto::port::{Body, HeaderBytes, Port, Sent};
use mx_proto::{LinkId, Source};
use mx_sim::{Ear, Hearing, VirtualClock, header_of};

/// Adds up what arrives.
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
            .connect_to(board, endpoint, &VirtualClock::default())
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
        Port::<Vec<u8>>::poll(
            &mut self.port,
            &VirtualClock::default(),
            64,
            &mut Hearing(&mut self.sink),
        )
    }

    fn send(&mut self, link: LinkId, body: &[u8]) {
        let header = header_of(0, body.len());
        let body = Body::<Vec<u8>>::Bytes(body);
        assert_eq!(
            Port::send(&mut self.port, link, &header, body),
            Ok(Sent::Whole)
        );
    }

    /// One packet there and one back.
    fn exchange(&mut self, value: u64) {
        self.send(self.link, &value.to_le_bytes());
        while !(self.port).poll_active::<Vec<u8>, _>(64, &mut Hearing(&mut self.sink)) {}
        let back = self.sink.link.unwrap();
        self.send(back, &value.to_le_bytes());
        while !(self.port).poll_active::<Vec<u8>, _>(64, &mut Hearing(&mut self.sink)) {}
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

#[test]
fn small_messages_make_no_system_call() {
    let mut talker = Talker::new(2);
    // SAFETY: the child makes no call that needs a lock another thread could have held: it moves
    // packets through a port that is there already, and exits.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // From here on any call but read, write and exit kills the process.
        // SAFETY: plain system call.
        let strict = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
        if strict == 0 {
            // Half as many polls as it takes until the port looks at its descriptors anyway.
            for value in 0..16_000 {
                talker.exchange(value);
            }
        }
        let code = if strict == 0 {
            i32::from(talker.sink.packets != 32_000)
        } else {
            77
        };
        // SAFETY: ends the process at once (`exit_group` would be refused).
        unsafe { libc::syscall(libc::SYS_exit, code) };
    }
    let mut status = 0;
    // SAFETY: our own child; `status` is valid.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(
        libc::WIFEXITED(status),
        "a system call was made: status {status:#x}"
    );
    match libc::WEXITSTATUS(status) {
        // A sandbox of its own forbids this one; the benchmark's strace shows the same.
        77 => eprintln!("skipped: strict mode is not available here"),
        code => assert_eq!(code, 0),
    }
}
