//! Ports, measured one after the other: sets the environment of a measurement and its peers.
//!
//! ```text
//!   MX_PORT=local, tried ---> measured      MX_PORT=rdm, not available ---> reported, left out
//! ```

use crate::args::{Args, Port};
use crate::bmi::Bmi;
use crate::{pin, report};

/// Measures over every available port.
pub(crate) fn each(
    args: &Args,
    mut measure: impl FnMut(Port) -> Result<(), String>,
) -> Result<(), String> {
    if args.pin {
        pin::to_core(0);
    }
    if let Some(provider) = &args.provider {
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var("MX_PROVIDER", provider) };
    }
    for port in args.ports() {
        // SAFETY: the libraries of the port before have been finalised, and with them their helper
        // threads; threads that wait for the end of a process do not look at the environment.
        unsafe { std::env::set_var("MX_PORT", port.name()) };
        // A port that cannot be opened is reported once, here. Closed again, so that peers inherit
        // nothing.
        match Bmi::start(&args.library, None) {
            Ok(bmi) => drop(bmi),
            Err(why) if port == Port::Rdm && args.port.is_none() => {
                report::not_measured(port.name(), &why, args.json);
                continue;
            }
            Err(why) => return Err(why),
        }
        measure(port)?;
    }
    Ok(())
}
