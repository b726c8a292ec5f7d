//! Cost of a blocked wait beside that of the kernel's own wake-up.
//!
//! `cargo bench -p mx-sys --bench wakeup [-- quick]`
//!
//! On a machine that does other things at the same time, give it a real-time priority
//! (`chrt -f 5`), or it measures those.
//!
//! Two threads pass a token to and fro, and each sleeps in the kernel until it comes (spinning is
//! off). Printed are one-way times: a bare `eventfd` or blocking TCP socket, and the same exchange
//! through `Shared::wait_for` over a toy engine and over whole endpoints. The threads are bound to
//! two processors, where there are two. Blocks of the measured
//! thing and of its reference follow each other in turn; the ratio is the median over pairs of
//! neighbouring blocks, with the spread of their middle half.

#[path = "../tests/node/mod.rs"]
mod node;
#[path = "../tests/support/mod.rs"]
mod support;

use mx_proto::{Config, RemoteId, Route};
use mx_sys::eventfd::EventFd;
use mx_sys::{EndpointChoice, Helper, OpenOptions, ROUTE_LOCAL, ROUTE_TCP, Shared, Tuning};
use node::Node;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Feeder, Toy};

/// Exchanges in one block.
const ROUNDS: u32 = 100;

const SLEEPY: Tuning = Tuning {
    spin: Duration::ZERO,
};

/// A side of an exchange: `give` the token to the other side, `take` it when it comes.
trait Side: Send {
    fn give(&mut self);
    fn take(&mut self);
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "quick");
    let blocks = if quick { 21 } else { 101 };
    println!("one-way wake-up of a blocked thread, {blocks} blocks of {ROUNDS} round trips");
    println!(
        "{:<34} {:>9} {:>9} {:>7}  middle half",
        "", "us", "bare us", "ratio"
    );
    compare("Shared, toy engine", blocks, toys(false), bare_doorbells());
    compare(
        "Shared, toy engine, with helper",
        blocks,
        toys(true),
        bare_doorbells(),
    );
    compare(
        "endpoints over local, with helper",
        blocks,
        nodes(ROUTE_LOCAL),
        bare_doorbells(),
    );
    compare(
        "endpoints over tcp, with helper",
        blocks,
        nodes(ROUTE_TCP),
        bare_sockets(),
    );
}

fn compare<A: Side, B: Side>(name: &str, blocks: usize, measured: (A, A), bare: (B, B)) {
    let (mut measured, mut bare) = (measured, bare);
    // Caches, connections, the clock.
    block(&mut measured);
    block(&mut bare);
    let mut pairs: Vec<(f64, f64)> = (0..blocks)
        .map(|_| (block(&mut measured), block(&mut bare)))
        .collect();
    let ours = median(pairs.iter().map(|pair| pair.0).collect());
    let theirs = median(pairs.iter().map(|pair| pair.1).collect());
    pairs.sort_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1)));
    let ratio = |at: usize| pairs[at].0 / pairs[at].1;
    println!(
        "{name:<34} {ours:>9.2} {theirs:>9.2} {:>7.3}  {:.3} to {:.3}",
        ratio(blocks / 2),
        ratio(blocks / 4),
        ratio(blocks * 3 / 4)
    );
}

/// Binds this thread to the processor of that number among those it may use.
fn bind(number: usize) {
    // SAFETY: a set of processors is plain bits, for which all zeroes is a value; the calls read
    // and write that set only.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of::<libc::cpu_set_t>();
        if libc::sched_getaffinity(libc::getpid(), size, &raw mut all) != 0 {
            return;
        }
        let mut usable = (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &all));
        let Some(cpu) = usable.nth(number) else {
            return;
        };
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut one);
        libc::sched_setaffinity(0, size, &raw const one);
    }
}

/// Microseconds one way.
fn block<S: Side>(sides: &mut (S, S)) -> f64 {
    let (here, there) = (&mut sides.0, &mut sides.1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            bind(1);
            for _ in 0..ROUNDS {
                there.take();
                there.give();
            }
        });
        let timed = scope.spawn(|| {
            bind(0);
            let begin = Instant::now();
            for _ in 0..ROUNDS {
                here.give();
                here.take();
            }
            begin.elapsed()
        });
        timed.join().unwrap().as_secs_f64() * 1e6 / f64::from(ROUNDS) / 2.0
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Two descriptors, and nothing else.
struct Doorbell {
    mine: Arc<EventFd>,
    theirs: Arc<EventFd>,
}

fn bare_doorbells() -> (Doorbell, Doorbell) {
    let (a, b) = (
        Arc::new(EventFd::new().unwrap()),
        Arc::new(EventFd::new().unwrap()),
    );
    let here = Doorbell {
        mine: Arc::clone(&a),
        theirs: Arc::clone(&b),
    };
    (here, Doorbell { mine: b, theirs: a })
}

impl Side for Doorbell {
    fn give(&mut self) {
        self.theirs.ring();
    }

    fn take(&mut self) {
        let mut fd = libc::pollfd {
            fd: self.mine.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one entry, valid for writing.
        while unsafe { libc::poll(&raw mut fd, 1, -1) } != 1 {}
        self.mine.silence();
    }
}

/// A blocking socket.
impl Side for TcpStream {
    fn give(&mut self) {
        self.write_all(&[0; 8]).unwrap();
    }

    fn take(&mut self) {
        self.read_exact(&mut [0; 8]).unwrap();
    }
}

fn bare_sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let there = listener.accept().unwrap().0;
    for socket in [&here, &there] {
        socket.set_nodelay(true).unwrap();
    }
    (here, there)
}

/// A toy engine of one's own, fed by the other side.
struct ToySide {
    shared: Arc<Shared<Toy>>,
    other: Feeder,
    _helper: Option<Helper<Toy>>,
}

fn toys(helper: bool) -> (ToySide, ToySide) {
    let ((a, feed_a), (b, feed_b)) = (Toy::new(1), Toy::new(1));
    let side = |toy, other| {
        let shared = Arc::new(Shared::new(toy, SLEEPY).unwrap());
        let helper = helper.then(|| Helper::start(Arc::clone(&shared)).unwrap());
        ToySide {
            shared,
            other,
            _helper: helper,
        }
    };
    (side(a, feed_b), side(b, feed_a))
}

impl Side for ToySide {
    fn give(&mut self) {
        self.other.push(0, 1);
    }

    fn take(&mut self) {
        self.shared.wait_until(None, |toy| toy.take(0)).unwrap();
    }
}

/// A whole endpoint.
struct NodeSide {
    node: Node,
    to: RemoteId,
    buffer: Box<[u8; 8]>,
}

fn nodes(route: Route) -> (NodeSide, NodeSide) {
    let open = || {
        let options = OpenOptions::new(EndpointChoice::Any);
        Node::tuned(options, Config::default(), true, SLEEPY).unwrap()
    };
    let (a, b) = (open(), open());
    let to_b = a.connect(b.target(route)).unwrap();
    let to_a = b.connect(a.target(route)).unwrap();
    let side = |node, to| NodeSide {
        node,
        to,
        buffer: Box::new([0; 8]),
    };
    (side(a, to_b), side(b, to_a))
}

impl Side for NodeSide {
    fn give(&mut self) {
        self.node.send_all(self.to, 1, &[0; 8]);
    }

    fn take(&mut self) {
        assert_eq!(self.node.receive(1, &mut self.buffer[..]).length, 8);
    }
}
