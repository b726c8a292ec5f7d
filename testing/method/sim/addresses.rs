//! Peers whose names stand for several addresses (RFC 8305).

use crate::rig::{Addr, NIC, NOWHERE, OTHER_NIC, Rig};
use bmi_method::abi::constants::*;
use bmi_method::peer::attempts::ATTEMPT_DELAY;
use bmi_method::peer::state::{State, WaitState};
use bmi_method::peer::table::Peer;
use mx_proto::{EndpointId, NicId, Target};
use mx_sim::Profile;
use mx_sim::world::NodeId;
use std::time::Duration;

/// First node: it never answers.
const HOLE: NodeId = 0;

/// Interfaces from this one on belong to that node.
const SILENT: NicId = NicId(0x6000);

/// Much longer than a round trip.
const SOON: Duration = Duration::from_millis(50);

fn silent(number: u64) -> NicId {
    NicId(SILENT.0 + number)
}

/// Maps targets on silent interfaces to the first node, and targets on [`OTHER_NIC`] to their
/// endpoint.
fn rename(mut target: Target) -> Target {
    match target.nic {
        OTHER_NIC => target.nic = NIC,
        NOWHERE => target.endpoint = EndpointId(u32::from(u16::MAX)),
        nic if nic >= SILENT => (target.nic, target.endpoint) = (NIC, EndpointId(HOLE as u32)),
        _ => {}
    }
    target
}

/// Maps targets like [`rename`], but [`OTHER_NIC`] is silent, too.
fn rename_without_other(target: Target) -> Target {
    match target.nic {
        OTHER_NIC => rename(Target {
            nic: SILENT,
            ..target
        }),
        _ => rename(target),
    }
}

struct Scene {
    rig: Rig,
    client: NodeId,
    server: NodeId,
    addr: Addr,
}

/// Makes a client, a server, and the client's object for the server, whose name stands for these
/// interfaces.
fn scene(nics: &[NicId]) -> Scene {
    scene_of(Rig::new(1), nics)
}

fn scene_of(mut rig: Rig, nics: &[NicId]) -> Scene {
    let [hole, client, server] = [(); 3].map(|()| rig.add(Profile::default()));
    assert_eq!(hole, HOLE);
    rig.fabric.rename(rename);
    rig.cluster.stall(HOLE, Duration::from_secs(3600));
    let addr = rig.host(client).look_up_at(server, nics);
    rig.host(client).use_addr(server, addr);
    Scene {
        rig,
        client,
        server,
        addr,
    }
}

impl Scene {
    /// Sends a request; returns its code and duration.
    fn request(&mut self) -> (i32, Duration) {
        let begin = self.rig.now();
        let sent = self.post();
        let code = self.rig.wait(self.client, sent);
        (code, self.rig.now().since(begin))
    }

    fn post(&mut self) -> u64 {
        let host = self.rig.host(self.client);
        host.send_unexpected(self.server, 1, b"request")
    }

    fn peer(&mut self) -> &Peer {
        let peers = self.rig.peek(self.client).method.peers();
        peers.at_addr(self.addr.as_ptr()).expect("a peer")
    }

    /// Returns the number of the client's sessions, including half-open ones.
    fn sessions(&mut self) -> usize {
        self.rig.peek(self.client).method.endpoint().remotes()
    }

    /// Answers every question about the name with these interfaces; returns the number of
    /// questions.
    fn answer(&mut self, nics: &[NicId]) -> usize {
        let method = &mut self.rig.host(self.client).method;
        let questions = method.take_questions();
        for question in &questions {
            method.resolved(question, nics);
        }
        questions.len()
    }

    /// Checks that the server's host knows that many clients, and got that many requests.
    fn check_served(&mut self, clients: usize, requests: usize) {
        let server = self.server;
        self.rig
            .run("the requests", |rig| rig.peek(server).got.len() == requests);
        self.rig.run_for(Duration::from_secs(5));
        let host = self.rig.peek(server);
        assert_eq!(host.registered.len(), clients);
        assert_eq!(host.got.len(), requests);
    }
}

#[test]
fn a_silent_address_costs_a_quarter_of_a_second() {
    let mut scene = scene(&[SILENT, NIC]);
    let (key, before) = (scene.peer().key, scene.peer().target);
    let (code, took) = scene.request();
    assert_eq!(code, 0);
    assert!(
        took >= ATTEMPT_DELAY && took < ATTEMPT_DELAY + SOON,
        "{took:?}"
    );
    assert_eq!(scene.sessions(), 1, "the other attempt is called off");
    scene.check_served(1, 1);
    // The object keeps the looked-up address, wherever the server was reached.
    assert_eq!((scene.peer().key, scene.peer().target), (key, before));
    assert_eq!(scene.peer().reached, Some(NIC));
    // Its machine wakes up: no host there is told of the attempt.
    scene.rig.cluster.stall(HOLE, Duration::ZERO);
    scene.rig.run_for(Duration::from_secs(5));
    let hole = scene.rig.peek(HOLE);
    assert!(hole.registered.is_empty() && hole.got.is_empty());
    assert_eq!(hole.method.peers().len(), 0);
}

#[test]
fn an_address_that_refuses_costs_nothing() {
    let mut scene = scene(&[NOWHERE, NOWHERE, NIC, SILENT]);
    let (code, took) = scene.request();
    assert_eq!(code, 0);
    assert!(took < SOON, "{took:?}");
    scene.check_served(1, 1);
}

#[test]
fn slow_path_succeeds_with_the_first_attempt() {
    let mut scene = scene(&[NIC, OTHER_NIC, SILENT]);
    let span = 4 * ATTEMPT_DELAY;
    scene.rig.cluster.stall(scene.server, span);
    let (code, took) = scene.request();
    assert_eq!(code, 0);
    assert!(took >= span && took < span + SOON, "{took:?}");
    assert_eq!(scene.peer().reached, Some(NIC));
    assert_eq!(
        scene.sessions(),
        1,
        "also of those that were accepted at once"
    );
    // Both attempts arrived at the server: its host knows one client.
    scene.check_served(1, 1);
    let server = scene.server;
    assert_eq!(scene.rig.peek(server).method.peers().len(), 1);
}

#[test]
fn when_all_fail_the_most_telling_cause_is_given() {
    let mut scene = scene(&[silent(1), NOWHERE, silent(2)]);
    let (code, took) = scene.request();
    assert_eq!(code, -BMI_ECONNREFUSED);
    assert!(
        took > Duration::from_secs(1),
        "{took:?}: silence is noticed"
    );
    assert_eq!(scene.sessions(), 0);
    // All addresses are tried again.
    scene.answer(&[silent(1), NOWHERE, NIC]);
    assert_eq!(scene.request().0, 0);
    scene.check_served(1, 1);
}

#[test]
fn the_time_for_a_handshake_is_that_of_all_attempts_together() {
    for (nics, code) in [
        (&[silent(1), silent(2)], -BMI_ETIMEDOUT),
        (&[silent(1), NOWHERE], -BMI_ECONNREFUSED),
    ] {
        let mut rig = Rig::new(1);
        let limit = Duration::from_secs(2);
        rig.settings.connect_timeout = Some(limit);
        let mut scene = scene_of(rig, nics);
        let (ended, took) = scene.request();
        assert_eq!(ended, code);
        assert!(took >= limit && took < limit + SOON, "{took:?}");
        assert_eq!(scene.sessions(), 0);
        assert_eq!(scene.peer().state, State::Init);
    }
}

#[test]
fn the_address_that_worked_last_is_tried_first() {
    let mut scene = scene(&[OTHER_NIC, NIC]);
    assert_eq!(scene.request().0, 0);
    assert_eq!(scene.peer().reached, Some(OTHER_NIC));
    scene.rig.run_for(SOON);
    // That path is lost while in use, and noticed after the peer time-out.
    let (client, server) = (scene.client, scene.server);
    scene.rig.fabric.cut(client, server);
    let lost = scene.rig.host(client).recv(server, 9, 1);
    assert_ne!(scene.rig.wait(client, lost), 0);
    scene.rig.fabric.heal(client, server);
    scene.rig.fabric.rename(rename_without_other);
    let (code, took) = scene.request();
    assert_eq!(code, 0);
    assert!(
        took >= ATTEMPT_DELAY && took < ATTEMPT_DELAY + SOON,
        "{took:?}"
    );
    assert_eq!(scene.peer().reached, Some(NIC));
    scene.rig.run_for(SOON);
    // From now on the other address is tried first.
    scene.rig.fabric.reset_links(client, server);
    scene.rig.run_for(Duration::from_secs(1));
    assert_eq!(scene.peer().state, State::Init);
    let (code, took) = scene.request();
    assert_eq!(code, 0);
    assert!(took < SOON, "{took:?}");
    // Each session is a client of the server's host, with one request each.
    scene.check_served(3, 3);
}

#[test]
fn cut_connection_is_retried_once_beside_the_others() {
    let mut scene = scene(&[NIC, SILENT]);
    let (client, server) = (scene.client, scene.server);
    scene.rig.cluster.stall(server, Duration::from_secs(1));
    let sent = scene.post();
    for cuts in 1..=2 {
        scene.rig.run_for(SOON);
        assert_eq!(scene.sessions(), 1, "one attempt, cut {cuts} times");
        scene.rig.fabric.reset_links(client, server);
    }
    // The second cut ends that attempt: the next one begins at once.
    scene.rig.run_for(SOON);
    let attempts = &scene.peer().wait.as_ref().unwrap().attempts;
    assert!(attempts.has_tried(SILENT) && attempts.is_under_way());
    assert_eq!(scene.answer(&[NIC, OTHER_NIC]), 0, "nothing is asked yet");
    scene.rig.run_for(Duration::from_secs(1));
    assert_eq!(scene.answer(&[NIC, SILENT, OTHER_NIC]), 1);
    assert_eq!(scene.rig.wait(client, sent), 0);
    assert_eq!(scene.peer().reached, Some(OTHER_NIC));
    scene.check_served(1, 1);
}

#[test]
fn an_address_that_is_newly_named_is_one_more_attempt() {
    let mut scene = scene(&[silent(1), silent(2)]);
    let begin = scene.rig.now();
    let sent = scene.post();
    scene
        .rig
        .run_for(ATTEMPT_DELAY + Duration::from_millis(1100));
    assert_eq!(scene.sessions(), 2);
    assert_eq!(scene.answer(&[silent(1), silent(2)]), 1);
    assert_eq!(scene.sessions(), 2, "both go on");
    scene.rig.run_for(Duration::from_secs(1));
    assert_eq!(scene.answer(&[silent(1), NIC]), 1);
    assert_eq!(scene.sessions(), 1, "the second is none of its any more");
    assert_eq!(scene.rig.wait(scene.client, sent), 0);
    let took = scene.rig.now().since(begin);
    assert!(took < Duration::from_millis(2700), "{took:?}");
    assert_eq!(scene.peer().target.nic, silent(1));
    scene.check_served(1, 1);
}

#[test]
fn object_from_before_initialize_is_resolved_at_once() {
    let mut scene = scene(&[SILENT]);
    let (client, key) = (scene.client, scene.peer().key);
    scene.rig.host(client).method.doubt_name(key);
    let begin = scene.rig.now();
    let sent = scene.post();
    assert_eq!(scene.answer(&[SILENT, NIC]), 1);
    assert_eq!(scene.rig.wait(client, sent), 0);
    let took = scene.rig.now().since(begin);
    assert!(
        took >= ATTEMPT_DELAY && took < ATTEMPT_DELAY + SOON,
        "{took:?}"
    );
}

#[test]
fn when_the_name_leaves_all_addresses_the_next_begins_at_once() {
    let mut scene = scene(&[silent(1), silent(2)]);
    let sent = scene.post();
    scene
        .rig
        .run_for(ATTEMPT_DELAY + Duration::from_millis(1100));
    let begin = scene.rig.now();
    assert_eq!(scene.answer(&[NOWHERE, OTHER_NIC]), 1);
    assert_eq!(scene.rig.wait(scene.client, sent), 0);
    assert!(scene.rig.now().since(begin) < SOON);
    assert_eq!(scene.peer().target.nic, NOWHERE);
    scene.check_served(1, 1);
}

#[test]
fn ten_addresses_are_eight_attempts() {
    let nics: Vec<NicId> = (0..10).map(silent).collect();
    let mut scene = scene(&nics);
    scene.post();
    for begun in 1..=8 {
        assert_eq!(scene.sessions(), begun);
        scene.rig.run_for(ATTEMPT_DELAY);
    }
    scene.rig.run_for(Duration::from_secs(1));
    assert_eq!(scene.sessions(), 8);
    assert_eq!(scene.answer(&nics), 1);
    // All end with the peer's last object.
    let (client, addr) = (scene.client, scene.addr);
    scene.rig.host(client).drop_addr(addr);
    assert_eq!(scene.sessions(), 0);
    scene.rig.run_for(Duration::from_secs(5));
    assert!(!scene.rig.peek(client).method.has_questions());
}

#[test]
fn objects_of_one_peer_have_their_addresses_together() {
    let mut scene = scene(&[SILENT]);
    let (client, server) = (scene.client, scene.server);
    let other = scene.rig.host(client).look_up_at(server, &[SILENT, NIC]);
    assert_eq!(scene.rig.peek(client).method.peers().len(), 1);
    assert_eq!(scene.request().0, 0);
    scene.rig.host(client).drop_addr(other);
    scene.rig.fabric.reset_links(client, server);
    scene.rig.run_for(Duration::from_secs(1));
    // Only the first address is left, which does not answer.
    let addr = scene.addr;
    let host = scene.rig.host(client);
    host.use_addr(server, addr);
    let posted = scene.post();
    scene.rig.run_for(Duration::from_secs(1));
    assert_eq!(scene.rig.peek(client).error(posted), None);
    assert_eq!(scene.peer().state, State::Wait(WaitState::Connecting));
    assert_eq!(scene.sessions(), 1);
}
