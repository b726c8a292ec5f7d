//! The TCP port beside bare sockets: one-way times and stream bandwidth, pairwise in one run.
//!
//! `cargo bench -p mx-sys --bench tcp_port [-- PAIRS [SIZE]]`
//!
//! Two threads, one on each of the first two processors, both busy-polling. Each pair measures
//! bare sockets and then the port; what counts is the median of the pairs' ratios.

use mx_port_base::clock::MonotonicClock;
use mx_port_tcp::{TcpOptions, TcpPort};
use mx_proto::port::{Body, Destination, HeaderBytes, Place, Port, SendError, Sent};
use mx_proto::{EndpointId, LinkId, NicId, Route, Source, Target};
use mx_sim::{Ear, Hearing, header_of};
use smallvec::smallvec;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant as Real};

/// The largest message that an endpoint sends without asking first.
const EAGER_MAX: usize = 32 * 1024;

fn main() {
    // Cargo itself passes `--bench`.
    let mut numbers = std::env::args().filter_map(|arg| arg.parse().ok());
    let pairs = numbers.next().unwrap_or(21);
    let only = numbers.next();
    println!(
        "{:>12} {:>14} {:>14} {:>8} {:>8}   quartiles of the ratio",
        "", "bare", "port", "ratio", "of best"
    );
    for (size, rounds) in [(8, 2000), (1024, 2000), (EAGER_MAX, 1000), (1 << 20, 100)] {
        if only.is_none_or(|only| only == size) {
            latency(pairs, size, rounds);
        }
    }
    for (size, count) in [(64 * 1024, 2000), (1 << 20, 200)] {
        if only.is_none_or(|only| only == size) {
            bandwidth(pairs, size, count);
        }
    }
}

fn latency(pairs: usize, size: usize, rounds: usize) {
    let name = format!("{size} B");
    report(&name, "us", pairs, |ours| {
        let took = if ours {
            port_pong(size, rounds)
        } else {
            bare_pong(size, rounds)
        };
        took.as_secs_f64() * 1e6 / (2 * rounds) as f64
    });
}

fn bandwidth(pairs: usize, size: usize, count: usize) {
    let name = format!("{size} B");
    report(&name, "MB/s", pairs, |ours| {
        let took = if ours {
            port_stream(size, count)
        } else {
            bare_stream(size, count)
        };
        (size * count) as f64 / 1e6 / took.as_secs_f64()
    });
}

fn report(name: &str, unit: &str, pairs: usize, mut measure: impl FnMut(bool) -> f64) {
    let (mut bare, mut port, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..pairs {
        let (b, p) = (measure(false), measure(true));
        bare.push(b);
        port.push(p);
        ratio.push(p / b);
    }
    for figures in [&mut bare, &mut port, &mut ratio] {
        figures.sort_by(f64::total_cmp);
    }
    // The best of each, with the least disturbance by other programs.
    let best = if unit == "us" {
        port[0] / bare[0]
    } else {
        port[pairs - 1] / bare[pairs - 1]
    };
    let (low, mid, high) = (pairs / 4, pairs / 2, pairs * 3 / 4);
    println!(
        "{name:>12} {:>9.2} {unit:4} {:>9.2} {unit:4} {:>8.3} {best:>8.3}   {:.3} .. {:.3}",
        bare[mid], port[mid], ratio[mid], ratio[low], ratio[high]
    );
}

// ---- bare sockets -------------------------------------------------------------------------

fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a listener");
    let here = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
    let (there, _) = listener.accept().expect("accepted");
    for socket in [&here, &there] {
        socket.set_nodelay(true).expect("nodelay");
        socket.set_nonblocking(true).expect("non-blocking");
        let name = b"reno";
        // SAFETY: the name is readable for its length during the call.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_CONGESTION,
                name.as_ptr().cast(),
                name.len() as libc::socklen_t,
            )
        };
    }
    (here, there)
}

fn push(socket: &mut TcpStream, bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        match socket.write(&bytes[at..]) {
            Ok(n) => at += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn pull(socket: &mut TcpStream, into: &mut [u8]) {
    let mut at = 0;
    while at < into.len() {
        match socket.read(&mut into[at..]) {
            Ok(0) => panic!("the other side is gone"),
            Ok(n) => at += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn bare_pong(size: usize, rounds: usize) -> Duration {
    let (mut here, mut there) = sockets();
    let warm = rounds / 10 + 1;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            let mut buffer = vec![1; size];
            for _ in 0..warm + rounds {
                pull(&mut there, &mut buffer);
                push(&mut there, &buffer);
            }
        });
        pin(0);
        let (out, mut back) = (vec![2; size], vec![0; size]);
        let mut start = Real::now();
        for round in 0..warm + rounds {
            if round == warm {
                start = Real::now();
            }
            push(&mut here, &out);
            pull(&mut here, &mut back);
        }
        start.elapsed()
    })
}

fn bare_stream(size: usize, count: usize) -> Duration {
    let (mut here, mut there) = sockets();
    let warm = count / 10 + 1;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            let mut buffer = vec![1; size];
            for round in 0..warm + count {
                pull(&mut there, &mut buffer);
                if round + 1 == warm {
                    push(&mut there, &[1]);
                }
            }
            push(&mut there, &[1]);
        });
        pin(0);
        let out = vec![2; size];
        for _ in 0..warm {
            push(&mut here, &out);
        }
        pull(&mut here, &mut [0]);
        let start = Real::now();
        for _ in 0..count {
            push(&mut here, &out);
        }
        pull(&mut here, &mut [0]);
        start.elapsed()
    })
}

// ---- the port -----------------------------------------------------------------------------

/// One side: what came in is counted, bodies go to one buffer.
struct Side {
    port: TcpPort,
    link: Option<LinkId>,
    sink: Count,
}

struct Count {
    packets: usize,
    link: Option<LinkId>,
    up: bool,
    into: Vec<u8>,
}

impl Ear for Count {
    fn on_up(&mut self, _: LinkId) {
        self.up = true;
    }

    fn on_packet<B: Source + ?Sized>(&mut self, link: LinkId, _: &HeaderBytes, body: &B) {
        self.link = Some(link);
        self.packets += 1;
        let len = body.len().min(self.into.len());
        body.copy_to(0, &mut self.into[..len]);
    }

    fn place(&mut self, _: LinkId, _: &HeaderBytes) -> Option<Place<'_, Vec<u8>>> {
        // An endpoint, too, has no place for eager messages.
        if self.into.len() <= EAGER_MAX {
            return None;
        }
        Some(Place {
            memory: Destination::Memory(&mut self.into),
            offset: 0,
        })
    }

    fn on_placed(&mut self, _: LinkId, _: &HeaderBytes) {
        self.packets += 1;
    }
}

impl Side {
    fn open(size: usize) -> Self {
        let listen = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))];
        let resolver = |target: Target| {
            Ok(smallvec![SocketAddr::from((
                Ipv4Addr::LOCALHOST,
                target.endpoint.0 as u16
            ))])
        };
        Self {
            port: TcpPort::open(TcpOptions::new(listen, Box::new(resolver))).expect("it opens"),
            link: None,
            sink: Count {
                packets: 0,
                link: None,
                up: false,
                into: vec![0; size],
            },
        }
    }

    fn poll(&mut self) {
        self.port
            .poll(&MonotonicClock, 64, &mut Hearing(&mut self.sink));
    }

    fn push(&mut self, memory: &Vec<u8>) {
        let Some(link) = self.link else { return };
        let len = memory.len();
        let header = header_of(0, len);
        let mut at = 0;
        let mut begun = false;
        loop {
            let sent = if begun {
                self.port.resume(link, memory, at, len - at)
            } else {
                self.port.send(
                    link,
                    &header,
                    Body::Memory {
                        memory,
                        offset: 0,
                        len,
                    },
                )
            };
            match sent {
                Ok(Sent::Part(n)) => {
                    begun = true;
                    at += n;
                    self.poll();
                }
                Ok(_) => return,
                Err(SendError::WouldBlock) => self.poll(),
                Err(SendError::Down) => panic!("the link is down"),
            }
        }
    }

    fn pull(&mut self, packets: usize) {
        while self.sink.packets < packets {
            self.poll();
        }
    }
}

/// Two sides with a link between them.
fn sides(size: usize) -> (Side, Side) {
    let (mut here, mut there) = (Side::open(size), Side::open(size));
    let target = Target {
        nic: NicId(1),
        endpoint: EndpointId(u32::from(there.port.local_port())),
        route: Route::AUTO,
    };
    let link =
        Port::<Vec<u8>>::connect(&mut here.port, target, &MonotonicClock).expect("it starts");
    here.link = Some(link);
    while !here.sink.up {
        here.poll();
    }
    here.push(&vec![0; 1]);
    there.pull(1);
    there.link = there.sink.link;
    there.sink.packets = 0;
    (here, there)
}

fn port_pong(size: usize, rounds: usize) -> Duration {
    let (mut here, mut there) = sides(size);
    let warm = rounds / 10 + 1;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            let out = vec![1; size];
            for round in 0..warm + rounds {
                there.pull(round + 1);
                there.push(&out);
            }
            // Both stay until the other one has read everything.
            there.pull(warm + rounds + 1);
        });
        pin(0);
        let out = vec![2; size];
        let mut start = Real::now();
        for round in 0..warm + rounds {
            if round == warm {
                start = Real::now();
            }
            here.push(&out);
            here.pull(round + 1);
        }
        let took = start.elapsed();
        here.push(&out);
        std::thread::sleep(Duration::from_millis(1));
        took
    })
}

fn port_stream(size: usize, count: usize) -> Duration {
    let (mut here, mut there) = sides(size);
    let warm = count / 10 + 1;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            there.pull(warm);
            there.push(&vec![1; 1]);
            there.pull(warm + count);
            there.push(&vec![1; 1]);
            there.pull(warm + count + 1);
        });
        pin(0);
        let out = vec![2; size];
        for _ in 0..warm {
            here.push(&out);
        }
        here.pull(1);
        let start = Real::now();
        for _ in 0..count {
            here.push(&out);
        }
        here.pull(2);
        let took = start.elapsed();
        here.push(&vec![1; 1]);
        std::thread::sleep(Duration::from_millis(1));
        took
    })
}

/// Keeps the thread on one processor, where the machine has it.
fn pin(processor: usize) {
    // SAFETY: `cpu_set_t` is plain integers, for which all zeros is a value, and the kernel reads
    // it during the call only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
