//! Names from a peers file, as programs see them.
//!
//! The test has a process of its own, because the peers file belongs to the process.

use crate::own_process::in_own_process;
use mx_proto::NicId;
use mx_sys::nic;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

struct File(PathBuf);

impl File {
    fn new() -> Self {
        let name = format!("mx-peers-file-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn id(name: &str) -> NicId {
    let found = nic::resolve_mx_name(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(!found.is_local(), "{name}");
    found.nic
}

fn address(nic: NicId) -> String {
    let addresses: Vec<SocketAddr> = nic::socket_addresses(nic, 0);
    assert_eq!(addresses.len(), 1);
    addresses[0].ip().to_string()
}

#[test]
fn a_peers_file_names_hosts_the_resolver_does_not_know() {
    in_own_process!();
    let file = File::new();
    nic::set_peers_file(Some(file.0.clone()));
    assert!(nic::resolve("mars.invalid", None).is_err());
    assert!(nic::known_peers().is_empty());

    // The id of 2001:db8::9, from which the address cannot be computed; another process may have
    // sent the id.
    let from_elsewhere = NicId(0xac12_f104_4ac8);
    assert!(nic::socket_addresses(from_elsewhere, 0).is_empty());
    file.write("2001:db8::9 pluto.invalid\n");
    assert_eq!(address(from_elsewhere), "2001:db8::9");
    assert_eq!(nic::mx_name(from_elsewhere).unwrap(), "pluto.invalid:0");

    file.write(
        "192.0.2.4  mars.invalid red\n192.0.2.5 mars.invalid\n2001:db8::6 venus.invalid\n\
         127.0.0.1 here.invalid\n192.0.2.7 localhost\nnonsense\n2001:db8::8\n",
    );
    names_lead_to_addresses_and_back();
    own_names_stay_own();
    known_are_those_of_the_file();

    // A host that was found at an address stays there while the host has that address, whichever
    // address is the first.
    let again = |before: &str| {
        let before = Some(nic::id_of_address(before.parse().unwrap()));
        let found = nic::resolve_again("mars.invalid", None, before);
        found.map(|found| address(found.nic)).ok()
    };
    for first in ["192.0.2.4", "192.0.2.5"] {
        let second = if first == "192.0.2.4" {
            "192.0.2.5"
        } else {
            "192.0.2.4"
        };
        file.write(&format!(
            "{first} mars.invalid\n{second} mars.invalid\n# {first}\n"
        ));
        for before in [first, second] {
            assert_eq!(
                again(before).as_deref(),
                Some(before),
                "{first} is the first"
            );
        }
        assert_eq!(again("192.0.2.6").as_deref(), Some(first), "that is gone");
    }
    // A name that is not found has no other address.
    file.write("\n");
    assert_eq!(again("192.0.2.4"), None);
    file.write("192.0.2.4  mars.invalid red\n192.0.2.5 mars.invalid\n");

    // A host that moves is found at its new address, and its name is not used for its old id any
    // more.
    let old = id("mars.invalid");
    file.write("192.0.2.40 mars.invalid\n");
    let new = id("mars.invalid");
    assert_eq!(address(new), "192.0.2.40");
    assert_eq!(nic::mx_name(new).unwrap(), "mars.invalid:0");
    assert_eq!(nic::mx_name(old).unwrap(), "192.0.2.4:0");
    assert_eq!(nic::host_name(old).unwrap(), "192.0.2.4");

    // A name that is too long for the MX API.
    let long = "n".repeat(nic::MX_NAME_MAX - 1);
    file.write(&format!("192.0.2.41 {long} {}\n", &long[1..]));
    assert_eq!(
        nic::mx_name(id(&long)).unwrap(),
        format!("{}:0", &long[1..])
    );
    assert_eq!(nic::host_name(id(&long)).unwrap(), long);

    all_addresses_of_a_name_are_found(&file);

    // The names of a removed file are no longer known.
    nic::set_peers_file(None);
    assert!(nic::resolve("mars.invalid", None).is_err());
    nic::set_peers_file(Some(Path::new("/nonexistent/peers").into()));
    assert!(nic::resolve("mars.invalid", None).is_err());
}

fn names_lead_to_addresses_and_back() {
    let mars = id("mars.invalid");
    assert_eq!(address(mars), "192.0.2.4");
    assert_eq!(nic::mx_name(mars).unwrap(), "mars.invalid:0");
    assert_eq!(id("RED"), mars);
    let second = id("mars.invalid:1");
    assert_eq!(address(second), "192.0.2.5");
    assert_eq!(nic::mx_name(second).unwrap(), "mars.invalid:1");
    assert_eq!(id("mars.invalid:1"), second);
    // The host has no third address.
    assert_eq!(id("mars.invalid:2"), mars);
    let venus = id("venus.invalid:0");
    assert_eq!(address(venus), "2001:db8::6");
    assert_eq!(nic::mx_name(venus).unwrap(), "venus.invalid:0");
    assert_eq!(nic::host_name(venus).unwrap(), "venus.invalid");
    // The address was never resolved by that name.
    assert_eq!(nic::mx_name(id("192.0.2.5")).unwrap(), "mars.invalid:1");
    let nameless = id("2001:db8::8");
    assert_eq!(nic::mx_name(nameless).unwrap(), "[2001:db8::8]:0");
}

fn all_addresses_of_a_name_are_found(file: &File) {
    let found = |board, before: Option<&str>| {
        let before = before.map(|text| nic::id_of_address(text.parse().unwrap()));
        let found = nic::resolve_again("io.invalid", board, before).unwrap();
        let nics = found.nics().into_iter();
        nics.map(address).collect::<Vec<_>>()
    };
    file.write(
        "198.51.100.1 io.invalid europa.invalid\n198.51.100.2 io.invalid\n2001:db8::21 io.invalid\n\
         198.51.100.1 io.invalid\n",
    );
    let [a, b, c] = ["198.51.100.1", "198.51.100.2", "2001:db8::21"];
    assert_eq!(found(None, None), [a, c, b]);
    assert_eq!(found(Some(1), None), [b, c, a]);
    assert_eq!(found(Some(2), Some(b)), [b, c, a], "where it was");
    assert_eq!(found(Some(9), None), [a, c, b], "it has no tenth");
    let second = nic::id_of_address(b.parse().unwrap());
    assert_eq!(nic::mx_name(second).unwrap(), "io.invalid:1");
    // An alias of the first address is its name only if it was looked up.
    let first = nic::id_of_address(a.parse().unwrap());
    assert_eq!(nic::host_name(first).unwrap(), "io.invalid");
    assert_eq!(id("europa.invalid"), first);
    assert_eq!(nic::host_name(first).unwrap(), "europa.invalid");
    found(Some(1), None);
    assert_eq!(nic::host_name(first).unwrap(), "europa.invalid");

    let many: String = (1..=20)
        .map(|last| format!("198.51.100.{last} io.invalid\n"))
        .collect();
    file.write(&many);
    let tried = found(None, None);
    assert_eq!(tried.len(), nic::ADDRESSES_MAX);
    assert_eq!(tried[7], "198.51.100.8");
}

fn own_names_stay_own() {
    let own = nic::own_nic(None).unwrap();
    for name in ["localhost", "localhost:0", "here.invalid", "here.invalid:0"] {
        let found = nic::resolve_mx_name(name).unwrap();
        assert!(found.is_local() && found.nic == own, "{name}");
    }
}

fn known_are_those_of_the_file() {
    let known = nic::known_peers();
    let lines: Vec<String> = known
        .iter()
        .map(|peer| {
            format!(
                "{} {} {}",
                peer.address,
                peer.names.join(" "),
                peer.is_local
            )
        })
        .collect();
    assert_eq!(
        lines,
        [
            "192.0.2.4 mars.invalid red false",
            "192.0.2.5 mars.invalid false",
            "2001:db8::6 venus.invalid false",
            "127.0.0.1 here.invalid true",
            "192.0.2.7 localhost false",
            "2001:db8::8  false",
        ]
    );
    assert_eq!(known[2].nic, id("venus.invalid"));
}
