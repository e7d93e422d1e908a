//! Measures the time from a question to its answer: `cargo run --release -p refit-messages
//! --example round_trip`.
//!
//! Two instances run in one process, first with every thread free to run anywhere, then with all of
//! them on one processor.

use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use refit_messages::{InstanceId, Layer, Message, Request, Security, Way};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::{Deserialize, Serialize};

const ROUNDS: usize = 20_000;

/// A request for a body of this many bytes.
#[derive(Serialize, Deserialize)]
struct Fetch(u32);

impl Message for Fetch {
    const KIND: u16 = 1;
    const WAY: Way = Way::Urgent;
}

impl Request for Fetch {
    type Answer = ();
}

fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "{:>10} {:>10} {:>8} {:>9} {:>9} {:>9}",
        "by", "processors", "bytes", "p50 µs", "p99 µs", "min µs"
    );
    for shared in [true, false] {
        for pinned in [false, true] {
            // Threads that are created from here on inherit this affinity.
            let mut processors = CpuSet::new();
            for processor in 0..if pinned { 1 } else { CpuSet::MAX_CPU } {
                processors.set(processor);
            }
            sched_setaffinity(None, &processors)?;
            let (one, two) = (layer(1)?, layer(2)?);
            if shared {
                let path = std::env::temp_dir().join(format!("round-trip-{}", std::process::id()));
                one.listen_here(&path)?;
                two.join_here(&path)?;
            } else {
                let none = Security::None { anywhere: false };
                let address = one.listen((Ipv4Addr::LOCALHOST, 0).into(), &none)?;
                two.join(&address.to_string(), &none)?;
            }
            for bytes in [64, 4096] {
                let mut times = Vec::with_capacity(ROUNDS);
                for _ in 0..ROUNDS {
                    let began = Instant::now();
                    two.ask(one.own(), &Fetch(bytes), &[0; 36])?;
                    times.push(began.elapsed().as_secs_f64() * 1e6);
                }
                times.sort_by(f64::total_cmp);
                let (by, on) =
                    (if shared { "rings" } else { "TCP" }, if pinned { "one" } else { "all" });
                let (middle, late, least) = (times[ROUNDS / 2], times[ROUNDS / 100 * 99], times[0]);
                println!("{by:>10} {on:>10} {bytes:>8} {middle:>9.1} {late:>9.1} {least:>9.1}");
            }
            two.close();
            one.close();
        }
    }
    Ok(())
}

fn layer(id: u16) -> Result<Arc<Layer>, Box<dyn Error>> {
    let body = [0; 4096];
    let layer = Layer::builder(InstanceId(id))
        .answer(move |_, Fetch(bytes), _, reply| reply.say(&(), &body[..bytes as usize]))
        .start()?;
    Ok(layer)
}
