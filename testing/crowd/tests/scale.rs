//! A storm of thousands of connects, and ten thousand peers that stay: their cost for the server in
//! bytes, descriptors and threads. Times are printed, but not checked.
//!
//! `BMI_MX_CROWD_CLIENTS` sets another number of clients; if the limit of descriptors is lower,
//! there are as many as it allows, and the test prints that. A single test function, because two
//! would share the machine's port numbers.

#[path = "../../sim/fixtures/exported.rs"]
mod exported;

use bmi_mx_crowd::census::Census;
use bmi_mx_crowd::crew::{Crew, Program, Server, crowds_for, millis};
use bmi_mx_crowd::limits;
use bmi_mx_crowd::orders::{Order, Who};
use exported::library;
use std::time::{Duration, Instant};

/// Total number of clients.
const CLIENTS: usize = 10_000;
/// Clients that connect first, at once; the others follow in groups of that size.
const STORM: usize = 2000;
/// Descriptors of the server in addition to its peers', generously.
const BESIDE: usize = 64;
/// Bytes that the server may have allocated per peer, including its share of every table.
const BYTES_EACH: u64 = 2048;
/// Number of clients below which one-time allocations outweigh those per client.
const MEANINGFUL: usize = 500;

fn program() -> Program {
    Program {
        file: env!("CARGO_BIN_EXE_bmi_mx_crowd").into(),
        server: vec!["server".into(), library("bmi-mx", "libbmi_mx.so").into()],
        crowd: vec!["crowd".into()],
        environment: vec![("MX_PORT".into(), "tcp".into())],
    }
}

/// Returns the number of clients: as requested, or as the server's limit of descriptors allows.
fn clients() -> usize {
    let asked = std::env::var("BMI_MX_CROWD_CLIENTS").ok();
    let asked = asked.map_or(CLIENTS, |text| text.parse().expect("a number of clients"));
    let limit = limits::raise_descriptors((asked + BESIDE) as u64) as usize;
    let possible = asked.min(limit.saturating_sub(BESIDE));
    if possible < asked {
        println!("{possible} clients instead of {asked}: the limit of descriptors is {limit}");
    }
    possible
}

/// Returns the server's census once `wanted` holds, or after a time-out.
fn census_when(server: &mut Server, wanted: impl Fn(&Census) -> bool) -> Census {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let census = server.census().unwrap();
        if wanted(&census) || Instant::now() > end {
            return census;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn peer_costs_one_descriptor_no_thread_and_two_kib() {
    let clients = clients();
    let crowds = crowds_for(clients);
    let mut server = Server::start(&program()).unwrap();
    let mut crew = Crew::start(&program(), &server, crowds).unwrap();
    let each = |count: usize, at: usize| count / crowds + usize::from(at < count % crowds);

    let opened = crew
        .each(|at| Some(Order::Open(each(clients, at))))
        .unwrap();
    assert_eq!(opened.done, clients as u64, "{}", opened.why);
    let before = server.census().unwrap();
    let mut connected = 0;
    while connected < clients {
        let wave = STORM.min(clients - connected);
        let order = |at| {
            let first = each(connected, at);
            let count = each(connected + wave, at) - first;
            Some(Order::Connect(Who { first, count }))
        };
        let outcome = crew.each(order).unwrap();
        assert_eq!(
            (outcome.done, outcome.failed),
            (wave as u64, 0),
            "{}",
            outcome.why
        );
        connected += wave;
        println!(
            "{connected} connected, the last {wave} in {:.0} ms",
            millis(outcome.time)
        );
    }

    // One descriptor each. Those of the handshake have been closed.
    let wanted = before.descriptors + clients as u64;
    let after = census_when(&mut server, |census| census.descriptors == wanted);
    assert_eq!(after.descriptors, wanted);
    assert_eq!(after.threads, before.threads);
    assert_eq!(after.requests, clients as u64);
    let bytes = (after.heap - before.heap) / clients as u64;
    println!("{bytes} bytes a peer");
    if clients >= MEANINGFUL {
        assert!(bytes <= BYTES_EACH, "{bytes} bytes a peer");
    }

    // All clients are still served, and at no higher cost.
    let time = Duration::from_millis(500);
    let outcome = crew
        .each(|at| {
            Some(Order::Ask {
                who: Who {
                    first: 0,
                    count: each(clients, at),
                },
                time,
                spin: false,
            })
        })
        .unwrap();
    assert_eq!(outcome.failed, 0, "{}", outcome.why);
    assert!(outcome.done >= clients as u64, "{} answers", outcome.done);
    let served = server.census().unwrap();
    assert_eq!(served.requests, after.requests + outcome.done);
    assert_eq!(
        (served.descriptors, served.threads),
        (wanted, before.threads)
    );

    // When clients leave, their resources are freed.
    drop(crew);
    let gone = census_when(&mut server, |census| {
        census.descriptors == before.descriptors
    });
    assert_eq!(gone.descriptors, before.descriptors);
    assert_eq!(gone.threads, before.threads);
}
