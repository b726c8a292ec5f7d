//! Order where a random run hardly ever looks: a send posted in the very moment in which others
//! that wait for room have begun to move.

use mx_proto::{Config, EndpointId};
use mx_sim::check::Selector;
use mx_sim::node::{KEY, NIC};
use mx_sim::{
    Book, Buffer, Cluster, Drive, Fabric, Habits, Mood, Node, Profile, SimPort, World, seeds,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

#[test]
fn a_send_does_not_overtake_those_that_wait_although_there_is_room_again() {
    let world = World::new(1);
    seeds::watch(&world);
    let fabric: Fabric<Buffer> = Fabric::new(&world, None);
    let profile = Profile {
        room: 10_000,
        ..Profile::default()
    };
    // One packet taken in and few given out by each call: the queue moves in small steps.
    let config = Config {
        poll_budget: 1,
        burst: 1,
        ..Config::default()
    };
    let book = Rc::new(RefCell::new(Book::default()));
    let mut cluster = Cluster::new(&world);
    for id in 0..2 {
        let name = EndpointId(id as u32);
        let port = SimPort::open(&fabric, id, NIC, name, profile).expect("a free name");
        let mut node = Node::new(
            &world,
            &book,
            (id, 2),
            config.clone(),
            Habits::default(),
            port,
        );
        node.mood = Mood::Quiet;
        cluster.add(node);
    }
    let run = |cluster: &mut Cluster<Node<SimPort<Buffer>>>, span: Duration| {
        let until = cluster.world().now().after(span);
        (0..2).for_each(|id| cluster.poke(id));
        assert!(cluster.run_until(until, 100_000));
    };
    let second = Duration::from_secs(1);
    cluster.node(0).expect("it lives").connect(1, KEY);
    run(&mut cluster, second);
    let receiver = cluster.node(1).expect("it lives");
    (0..40).for_each(|_| receiver.recv(Selector::exact(5), 1_000));
    run(&mut cluster, second);
    let sender = cluster.node(0).expect("it lives");
    let remote = sender.remotes()[0];
    (0..30).for_each(|_| sender.send(remote, 5, 1_000));
    let waiting = sender.outstanding();
    assert!(waiting > 10, "the link took everything at once");
    // The receiver empties the link while the sender does not look.
    cluster.stall(0, Duration::from_millis(1));
    cluster.poke(1);
    let until = world.now().after(Duration::from_micros(900));
    assert!(cluster.run_until(until, 100_000));
    let sender = cluster.node(0).expect("it lives");
    while sender.outstanding() == waiting {
        assert!(sender.progress(), "nothing moves");
    }
    assert!(sender.outstanding() > 0, "everything moved at once");
    sender.send(remote, 5, 1_000);
    run(&mut cluster, second);
    assert_eq!(book.borrow().received(), 31);
}
