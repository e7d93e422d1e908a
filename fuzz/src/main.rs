//! Runs libFuzzer on the target that `REFIT_FUZZ_TARGET` names.

#![no_main]

use std::sync::OnceLock;

use refit_fuzz::{TARGETS, Target, target};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static CHOSEN: OnceLock<Target> = OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let name = std::env::var("REFIT_FUZZ_TARGET").unwrap_or_default();
        target(&name).unwrap_or_else(|| {
            let names = TARGETS.map(|target| target.name).join(", ");
            eprintln!("REFIT_FUZZ_TARGET has to name one of: {names}");
            std::process::exit(2);
        })
    });
    (chosen.feed)(bytes);
});
