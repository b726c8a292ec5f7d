//! Operations of an exchange whose connection was lost: none waits for a peer that has forgotten
//! the exchange, and a new exchange works at once.

use crate::rig::Rig;
use bmi_method::abi::constants::*;
use bmi_method::abi::types::bmi_method_addr;
use bmi_method::method::PostKind;
use mx_sim::Profile;
use mx_sim::world::NodeId;
use std::ptr::NonNull;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(800);
/// Limit for a time-out, including the endpoint's timer granularity.
const LIMIT: Duration = Duration::from_millis(850);
const ANSWER: i32 = 1;
const ACK: i32 = 3;
const STRIP: usize = 256 << 10;

/// A client and a server.
struct Pair {
    rig: Rig,
    client: NodeId,
    server: NodeId,
}

impl Pair {
    /// Makes two hosts that have exchanged a request and its answer.
    fn new(seed: u64) -> Self {
        let mut pair = Self::unopened(seed);
        assert_eq!(pair.exchange(), (0, 0));
        pair
    }

    /// Makes two hosts that have not exchanged anything.
    fn unopened(seed: u64) -> Self {
        let mut rig = Rig::new(seed);
        rig.endpoint.peer_timeout = Some(TIMEOUT);
        let (client, server) = (rig.add(Profile::default()), rig.add(Profile::default()));
        Self {
            rig,
            client,
            server,
        }
    }

    /// Makes a whole exchange, with the receive posted before its request; returns the codes of
    /// request and answer.
    fn exchange(&mut self) -> (i32, i32) {
        let answer = self.rig.host(self.client).recv(self.server, ANSWER, 100);
        let request = self.request();
        let came = self.hand_out();
        self.answer(came, ANSWER);
        let ended = self.rig.wait(self.client, request);
        (ended, self.rig.wait(self.client, answer))
    }

    fn request(&mut self) -> u64 {
        let host = self.rig.host(self.client);
        host.send_unexpected(self.server, ANSWER, b"request")
    }

    /// Waits until the server has the next request; returns its sender.
    fn hand_out(&mut self) -> NonNull<bmi_method_addr> {
        let server = self.server;
        self.rig
            .run("the request", |rig| !rig.peek(server).got.is_empty());
        let got = self.rig.peek(server).got.remove(0);
        got.addr()
    }

    fn answer(&mut self, to: NonNull<bmi_method_addr>, tag: i32) -> u64 {
        let host = self.rig.host(self.server);
        host.post(PostKind::Send, to, tag, (*b"answer").into())
            .unwrap()
    }

    /// The server answers a client that is stopped, waits for something else from it, and gives it
    /// up. Earlier operations of the client have ended without an error.
    fn client_is_given_up_behind_an_answer(&mut self) {
        let (client, server) = (self.client, self.server);
        let answer = self.rig.host(client).recv(server, ANSWER, 100);
        let request = self.request();
        let came = self.hand_out();
        assert_eq!(self.rig.wait(client, request), 0);
        self.rig.cluster.stall(client, TIMEOUT * 3);
        self.answer(came, ANSWER);
        let host = self.rig.host(server);
        let strip = vec![0; STRIP].into_boxed_slice();
        let strip = host.post(PostKind::Recv, came, 2, strip).unwrap();
        assert_eq!(self.rig.wait(server, strip), -BMI_ETIMEDOUT);
        assert_eq!(self.rig.wait(client, answer), 0);
        self.rig.run_for(TIMEOUT / 8);
    }

    /// Runs until a client's operation has ended; returns its code, and its duration.
    fn end(&mut self, label: u64) -> (i32, Duration) {
        let began = self.rig.now();
        let code = self.rig.wait(self.client, label);
        (code, self.rig.now().since(began))
    }
}

#[test]
fn posts_of_a_client_to_a_cut_exchange_end_at_once() {
    for seed in 0..20 {
        let mut pair = Pair::new(seed);
        pair.client_is_given_up_behind_an_answer();
        let (client, server) = (pair.client, pair.server);
        let receive_first = seed % 2 == 0;
        let ack = |pair: &mut Pair| pair.rig.host(client).recv(server, ACK, 100);
        let early = receive_first.then(|| ack(&mut pair));
        let strip = pair.rig.host(client).send(server, 2, &vec![7; STRIP]);
        let ack = early.unwrap_or_else(|| ack(&mut pair));
        let (code, took) = pair.end(strip);
        assert_eq!(
            (code, took),
            (-BMI_ENETRESET, Duration::ZERO),
            "seed {seed}"
        );
        let (code, took) = pair.end(ack);
        assert_eq!(code, -BMI_ENETRESET, "seed {seed}");
        let limit = if receive_first { Duration::ZERO } else { LIMIT };
        assert!(took <= limit, "{took:?}");
        // The host begins a new exchange, which works at once.
        assert_eq!(pair.exchange(), (0, 0), "seed {seed}");
    }
}

#[test]
fn receive_of_a_cut_exchange_ends_after_a_peer_timeout() {
    let mut pair = Pair::new(1);
    pair.client_is_given_up_behind_an_answer();
    let receive = pair.rig.host(pair.client).recv(pair.server, ACK, 100);
    let (code, took) = pair.end(receive);
    assert_eq!(code, -BMI_ENETRESET);
    assert!((TIMEOUT..LIMIT).contains(&took), "{took:?}");
    assert_eq!(pair.exchange(), (0, 0));
}

#[test]
fn receive_posted_before_its_request_waits_for_the_answer() {
    let mut pair = Pair::new(1);
    pair.client_is_given_up_behind_an_answer();
    let (client, server) = (pair.client, pair.server);
    let answer = pair.rig.host(client).recv(server, ANSWER, 100);
    pair.rig.run_for(TIMEOUT / 2);
    let request = pair.request();
    assert_eq!(pair.rig.wait(client, request), 0);
    let came = pair.hand_out();
    // Only the server is checked for liveness meanwhile.
    pair.rig.run_for(TIMEOUT * 4);
    assert_eq!(pair.rig.peek(client).error(answer), None);
    pair.answer(came, ANSWER);
    assert_eq!(pair.rig.wait(client, answer), 0);
}

#[test]
fn request_older_than_its_connection_is_answered_with_error() {
    for mut pair in [Pair::new(1), Pair::unopened(1)] {
        let (client, server) = (pair.client, pair.server);
        pair.rig.peek(server).fetching = false;
        let request = pair.request();
        assert_eq!(pair.rig.wait(client, request), 0);
        pair.rig.kill(client);
        pair.rig.run_for(TIMEOUT);
        pair.rig.host(server).fetching = true;
        let came = pair.hand_out();
        let sent = pair.answer(came, ANSWER);
        let receive = pair.rig.host(server).recv_at(came, 2, 100);
        let began = pair.rig.now();
        for label in [sent, receive] {
            assert_eq!(pair.rig.wait(server, label), -BMI_ENETRESET);
        }
        assert_eq!(pair.rig.now(), began);
        // The client's next life is served.
        pair.rig.restart(client, Profile::default());
        assert_eq!(pair.exchange(), (0, 0));
    }
}

#[test]
fn servers_receive_of_a_cut_exchange_ends_at_once() {
    let mut pair = Pair::new(1);
    let (client, server) = (pair.client, pair.server);
    let request = pair.request();
    let came = pair.hand_out();
    assert_eq!(pair.rig.wait(client, request), 0);
    // The client gives up the server, which is stopped.
    pair.rig.cluster.stall(server, TIMEOUT * 3);
    let lost = pair.rig.host(client).recv(server, ACK, 100);
    assert_eq!(pair.rig.wait(client, lost), -BMI_ETIMEDOUT);
    pair.rig.run_for(TIMEOUT * 3);
    let began = pair.rig.now();
    let receive = pair.rig.host(server).recv_at(came, 2, 100);
    assert_eq!(pair.rig.wait(server, receive), -BMI_ENETRESET);
    assert_eq!(pair.rig.now(), began);
    assert_eq!(pair.exchange(), (0, 0));
}
