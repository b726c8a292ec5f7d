//! Parameters derived from a seed besides the steps: the shape of the program, and the library's
//! settings.
//!
//! ```text
//!   seed --> Shape, 1 of 8: calm cancels deaths frozen storm, otherwise random
//!       `--> MX_*: small time-outs always, odd sizes sometimes
//! ```

use bmi_mx_torture::Shape;
use mx_sim::Rng;
use std::time::Duration;

/// Returns the shape of a seed's program. `name` selects one whatever the seed; `None` for an
/// unknown name. `fabric`: shorter, because starting a process takes long.
pub(crate) fn shape(seed: u64, name: Option<&str>, fabric: bool) -> Option<Shape> {
    let mut rng = Rng::new(seed ^ 0x0073_6861_7065).fork();
    let named = Shape::named();
    let mut shape = match name {
        Some("random") => Shape::random(&mut rng),
        Some(name) => named.into_iter().find(|shape| shape.name == name)?,
        None => {
            let random = Shape::random(&mut rng);
            named.into_iter().nth(rng.index(8)).unwrap_or(random)
        }
    };
    shape.steps *= rng.pick(&[1, 2, 4]);
    if fabric {
        shape.steps /= 4;
    }
    // Shorter and longer than the time-outs below.
    shape.freeze = Duration::from_millis(rng.pick(&[20, 500, 3_000]));
    shape.pause = shape.pause.min(Duration::from_millis(20));
    // Needs a network of its own.
    shape.weights.cut = 0;
    // More than a ring or a socket holds: cancelled when half of it has been sent.
    if shape.name == "cancels" {
        shape.message_max = 3 << 20;
    }
    Some(shape)
}

/// Returns the time that the director waits after each step: none, until operations are under way,
/// or until they are done.
pub(crate) fn pace(seed: u64) -> Duration {
    let mut rng = Rng::new(seed ^ 0x7061_6365).fork();
    Duration::from_micros(rng.pick(&[0, 0, 200, 2_000]))
}

/// Returns the nodes' environment.
pub(crate) fn environment(seed: u64, port: &str) -> Vec<(&'static str, String)> {
    let mut rng = Rng::new(seed ^ 0x0065_6e76).fork();
    let mut all = vec![
        ("MX_PORT", port.to_owned()),
        ("BMI_MX_LOG", "debug".into()),
        ("BMI_MX_PEER_TIMEOUT_MS", PEER_TIMEOUT_MS.to_string()),
        ("BMI_MX_CONNECT_TIMEOUT_MS", "3000".into()),
        ("MX_REQUEST_TIMEOUT_MS", "3000".into()),
        ("MX_TCP_KEEPALIVE_MS", "2000".into()),
        ("MX_RDM_KEEPALIVE_MS", "1500".into()),
        ("MX_DGRAM_GIVE_UP_MS", "1500".into()),
    ];
    for (name, values) in [
        ("MX_SPIN_US", &["50", "0"][..]),
        ("MX_HELPER", &["on", "on", "on", "off"]),
        ("MX_EAGER_MAX", &["32K", "4K", "128"]),
        ("BMI_MX_BUFFER_CACHE", &["64M", "0"]),
        ("MX_UNEXPECTED_BYTES", &["64M", "8M"]),
    ] {
        // Mostly the default.
        let value = if rng.chance(0.7) {
            values[0]
        } else {
            rng.pick(values)
        };
        all.push((name, value.to_owned()));
    }
    all
}

/// Time-out of a silent peer; longer than a busy machine keeps a thread waiting.
pub(crate) const PEER_TIMEOUT_MS: u64 = 2_000;

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn seeds_give_the_same_every_time_and_all_kinds() {
        let mut names = std::collections::BTreeSet::new();
        for seed in 0..100 {
            assert_eq!(shape(seed, None, false), shape(seed, None, false));
            assert_eq!(environment(seed, "tcp"), environment(seed, "tcp"));
            names.insert(shape(seed, None, true).unwrap().name);
        }
        assert_eq!(names.len(), 6);
        assert_eq!(shape(1, Some("storm"), true).unwrap().name, "storm");
        assert!(shape(1, Some("quiet"), false).is_none());
    }
}
