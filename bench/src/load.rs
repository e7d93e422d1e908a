//! Measures the throughput that a mount loses while every file cache is swapped a hundred times per
//! second, and null swaps of real file caches.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use refit_files::{CacheMode, Mount, MountOptions, Users, mount};
use refit_objects::{ObjectId, SwapOptions, objects, swap_named};

use crate::files::{Place, fio};
use crate::stats::Sample;

pub(crate) fn serve(place: &Place) -> Mount {
    std::fs::create_dir_all(place.source()).expect("the scratch directory can be written");
    mount(MountOptions {
        source: place.source(),
        mountpoint: place.mountpoint(),
        frames_bytes: 1 << 30,
        cache: CacheMode::Direct,
        workers: None,
        composition: refit_files::composition("shared"),
        users: Users::Owner,
        read_only: false,
        xattrs: true,
        awake: false,
    })
    .expect("a scratch directory can be mounted")
}

/// Returns the caches of all files.
pub(crate) fn caches() -> Vec<ObjectId> {
    objects().into_iter().filter(|o| o.interface == "fcm").map(|o| o.id).collect()
}

/// The throughput of `fio` without and with swaps, in turn.
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) without: Sample,
    pub(crate) with: Sample,
    /// The ratio of each round: with swaps over without.
    pub(crate) ratio: Sample,
    /// The number of swaps in all.
    pub(crate) swaps: u64,
}

pub(crate) fn measure(rounds: usize) -> Load {
    let place = Place::new().expect("a scratch directory can be made");
    let mount = serve(&place);
    let mountpoint = place.mountpoint();
    fio(&mountpoint, "read", 2, 1); // lays the files out
    let mut load = Load::default();
    for round in 0..rounds {
        let mut with = || {
            let (iops, swaps) = while_swapping(|| fio(&mountpoint, "randrw", 2, 3));
            load.swaps += swaps;
            iops
        };
        let without = || fio(&mountpoint, "randrw", 2, 3);
        let (before, after) = if round % 2 == 0 {
            let before = without();
            (before, with())
        } else {
            let after = with();
            (without(), after)
        };
        load.without.push(before);
        load.with.push(after);
        load.ratio.push(after / before);
        eprintln!("load: round {} of {rounds}", round + 1);
    }
    mount.unmount().expect("nobody uses it any more");
    load
}

/// Swaps all caches back and forth, a hundred times per second, while `work` runs.
fn while_swapping<R>(work: impl FnOnce() -> R) -> (R, u64) {
    let stop = AtomicBool::new(false);
    let swaps = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = Instant::now();
            let mut n = 0_u32;
            while !stop.load(Ordering::Relaxed) {
                let ids = caches();
                let to = if (n / 2).is_multiple_of(2) { "partitioned" } else { "shared" };
                if let Some(id) = ids.get(n as usize % ids.len().max(1)) {
                    let report = swap_named(*id, to, u64::from(n), &SwapOptions::default());
                    assert!(report.committed(), "{report:?}");
                    swaps.fetch_add(1, Ordering::Relaxed);
                }
                n += 1;
                // The pause only sets the rate of swaps; nothing waits for an event here.
                let next = began + Duration::from_millis(10) * n;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        });
        let result = work();
        stop.store(true, Ordering::Relaxed);
        (result, swaps.load(Ordering::Relaxed))
    })
}
