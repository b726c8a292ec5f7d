//! Adapters that need libfabric: detection, and checks that the one in use is still present.
//!
//! ```text
//!   /sys/class/infiniband/mlx5_0/device      InfiniBand, RoCE, EFA      a port of it is active
//!                        /ports/1/state
//!   /sys/class/infiniband_verbs/uverbs0/ibdev                   "mlx5_0": can be opened
//!   /sys/class/cxi/cxi0                      Slingshot
//!   /sys/class/hfi1/hfi1_0                   Omni-Path
//! ```
//!
//! Adapters are detected before libfabric is loaded, so that a machine with only Ethernet never loads it. The one in
//! use is checked again later, because providers do not report that a device was removed or lost its link.
//!
//! Out of scope: libfabric.

use libfabric_sys::is_software_rdma;
use std::fs;
use std::path::{Path, PathBuf};

/// Classes whose devices count if they are present.
const OTHERS: [&str; 3] = ["cxi", "hfi1", "hfi1_user"];

/// Directory in which the system lists devices.
pub(crate) const CLASSES: &str = "/sys/class";

/// Maximum number of devices examined per class.
const DEVICES: usize = 64;

/// Returns the adapters of this machine that need libfabric and are usable (InfiniBand or RoCE with a link, Slingshot,
/// Omni-Path), as `class/device`, for display; empty if there are none. Does not load libfabric.
pub fn adapters() -> Vec<String> {
    adapters_in(Path::new(CLASSES))
}

/// Returns the adapters below `classes`, which is laid out like `/sys/class`.
pub fn adapters_in(classes: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for name in devices(&classes.join("infiniband")) {
        if is_usable(&classes.join("infiniband").join(&name)) {
            found.push(format!("infiniband/{name}"));
        }
    }
    for class in OTHERS {
        let names = devices(&classes.join(class));
        found.extend(names.into_iter().map(|name| format!("{class}/{name}")));
    }
    found
}

/// Returns the devices of a class; none if the class does not exist.
fn devices(class: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(class) else {
        return Vec::new();
    };
    let names = entries
        .take(DEVICES)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

/// Returns whether this is a device, not software on top of Ethernet, with a port that has a link.
fn is_usable(device: &Path) -> bool {
    !is_software_rdma(device) && has_link(&device.join("ports"))
}

fn has_link(ports: &Path) -> bool {
    devices(ports).iter().any(|port| {
        // "4: ACTIVE"
        let state = fs::read_to_string(ports.join(port).join("state"));
        state.is_ok_and(|state| state.trim_start().starts_with('4'))
    })
}

/// Device in use, by its system directory.
#[derive(Debug)]
pub(crate) struct DeviceInUse(PathBuf);

impl DeviceInUse {
    /// Returns the device that a provider's domain is named after; `None` if the system has none.
    pub(crate) fn of(classes: &Path, domain: &str) -> Option<Self> {
        let mut places = ["infiniband"].iter().chain(&OTHERS);
        let place = places.find_map(|class| {
            let place = classes.join(class).join(domain);
            place.exists().then_some(place)
        });
        place.filter(|_| !domain.is_empty()).map(Self)
    }

    /// Returns whether the device is still present.
    pub(crate) fn is_there(&self) -> bool {
        self.0.exists() && self.can_be_opened()
    }

    /// Returns whether the entry for verbs is present. It is removed first: some drivers keep the rest until the last
    /// process has closed the device.
    fn can_be_opened(&self) -> bool {
        let class = self.0.parent();
        let class = class.filter(|class| class.ends_with("infiniband"));
        let verbs = class.map(|class| class.with_file_name("infiniband_verbs"));
        let Some(verbs) = verbs.filter(|verbs| verbs.exists()) else {
            return true;
        };
        let name = self.0.file_name().and_then(|name| name.to_str());
        devices(&verbs).iter().any(|entry| {
            let of = fs::read_to_string(verbs.join(entry).join("ibdev"));
            of.ok().as_deref().map(str::trim) == name
        })
    }

    /// Returns whether the device is present and, if it has ports, one of them has a link.
    pub(crate) fn is_up(&self) -> bool {
        let ports = self.0.join("ports");
        self.is_there() && (!ports.exists() || has_link(&ports))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// Directory that is removed after the test.
    struct Classes(PathBuf);

    impl Classes {
        fn new(name: &str) -> Self {
            let name = format!("mx-hardware-{name}-{}", std::process::id());
            let root = std::env::temp_dir().join(name);
            fs::create_dir_all(&root).unwrap();
            Self(root)
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Classes {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_machine_without_such_classes_has_no_adapter() {
        let classes = Classes::new("none");
        assert!(adapters_in(&classes.0).is_empty());
        assert!(adapters_in(&classes.0.join("nowhere")).is_empty());
        classes.put("infiniband/.keep", "");
        fs::create_dir_all(classes.0.join("cxi")).unwrap();
        assert!(adapters_in(&classes.0).is_empty());
    }

    #[test]
    fn adapter_counts_if_one_of_its_ports_is_up() {
        let classes = Classes::new("verbs");
        classes.put("infiniband/mlx5_0/device/vendor", "0x15b3\n");
        classes.put("infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
        // Software RDMA has no device below it.
        classes.put("infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
        assert!(adapters_in(&classes.0).is_empty());
        classes.put("infiniband/mlx5_0/ports/2/state", "4: ACTIVE\n");
        assert_eq!(adapters_in(&classes.0), ["infiniband/mlx5_0"]);
    }

    #[test]
    fn a_device_in_use_is_looked_at_again() {
        let classes = Classes::new("in-use");
        classes.put("infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
        classes.put("cxi/cxi0/uevent", "");
        for absent in ["", "rxe1", "lo"] {
            assert!(DeviceInUse::of(&classes.0, absent).is_none(), "{absent}");
        }
        let rxe = DeviceInUse::of(&classes.0, "rxe0").unwrap();
        assert!(rxe.is_up() && DeviceInUse::of(&classes.0, "cxi0").unwrap().is_up());
        classes.put("infiniband/rxe0/ports/1/state", "1: DOWN\n");
        assert!(rxe.is_there() && !rxe.is_up());
        fs::remove_dir_all(classes.0.join("infiniband/rxe0")).unwrap();
        assert!(!rxe.is_there() && !rxe.is_up());
    }

    #[test]
    fn a_device_that_waits_for_its_users_is_gone() {
        let classes = Classes::new("waits");
        classes.put("infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
        classes.put("infiniband_verbs/abi_version", "6\n");
        classes.put("infiniband_verbs/uverbs0/ibdev", "rxe0\n");
        classes.put("infiniband_verbs/uverbs1/ibdev", "rxe1\n");
        classes.put("cxi/cxi0/uevent", "");
        let rxe = DeviceInUse::of(&classes.0, "rxe0").unwrap();
        assert!(rxe.is_up() && DeviceInUse::of(&classes.0, "cxi0").unwrap().is_up());
        fs::remove_dir_all(classes.0.join("infiniband_verbs/uverbs0")).unwrap();
        assert!(!rxe.is_there() && !rxe.is_up());
        // The device is back, under another number.
        classes.put("infiniband_verbs/uverbs2/ibdev", "rxe0\n");
        assert!(rxe.is_up());
    }

    #[test]
    fn slingshot_and_omni_path_count_by_being_there() {
        let classes = Classes::new("others");
        classes.put("cxi/cxi0/uevent", "");
        classes.put("hfi1/hfi1_0/uevent", "");
        assert_eq!(adapters_in(&classes.0), ["cxi/cxi0", "hfi1/hfi1_0"]);
    }
}
