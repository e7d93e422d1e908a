//! A replacement policy that was built separately is loaded into a mount and swapped in while
//! programs use files.

#[path = "../../../examples/plugin/host/tests/common/mod.rs"]
mod plugins;
mod stage;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use plugins::OnDrop;
use refit_sys::memory::PAGE_SIZE;
use rustix::process::Signal;
use serde_json::Value;
use stage::Stage;

/// The number of pages of the file, three times the number of frames.
const PAGES: usize = 768;
const FRAMES: &str = "1M";

/// Writes and reads pages all over the file, some of them more often than others; returns the final
/// contents of the file.
fn use_file(path: &Path, stop: &AtomicBool, rounds: &AtomicU64) -> Vec<u8> {
    let file: File = OpenOptions::new().read(true).write(true).open(path).expect("it is there");
    let mut expected = vec![0; PAGES * PAGE_SIZE];
    for round in 0.. {
        if stop.load(Relaxed) {
            break;
        }
        let at = round * 7 % PAGES * PAGE_SIZE;
        let bytes = vec![round as u8; PAGE_SIZE];
        file.write_all_at(&bytes, at as u64).expect("written");
        expected[at..at + PAGE_SIZE].copy_from_slice(&bytes);
        for page in [round % 10, round * 31 % PAGES] {
            let mut read = vec![0; PAGE_SIZE];
            file.read_exact_at(&mut read, (page * PAGE_SIZE) as u64).expect("read");
            assert!(
                read == expected[page * PAGE_SIZE..][..PAGE_SIZE],
                "page {page} in round {round}"
            );
        }
        rounds.fetch_add(1, Relaxed);
    }
    expected
}

#[test]
fn policies_are_loaded_and_swapped_while_pages_are_evicted() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve_with(&["--frames", FRAMES, "--cache", "direct"]) else {
        return;
    };
    let file = stage.path("mnt").join("a");
    fs::write(&file, vec![0; PAGES * PAGE_SIZE]).expect("written");
    stage.refuses(&["swap", "policy:*", "fifo"], "no implementation is called fifo");
    let plugin = plugins::path_of(&plugins::build("example-policy", ""), &stage.top);
    let plugin = plugin.to_str().expect("UTF-8");

    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let expected = std::thread::scope(|scope| {
        let program = scope.spawn(|| use_file(&file, &stop, &rounds));
        let _stop = OnDrop(|| stop.store(true, Relaxed));
        // Long enough for the hand to pass all frames.
        let used = || {
            let before = rounds.load(Relaxed);
            while rounds.load(Relaxed) < before + PAGES as u64 {
                assert!(!program.is_finished(), "the program has failed");
                std::thread::yield_now();
            }
        };
        used();
        let (code, stdout, stderr) = stage.run(&["load", plugin]);
        assert_eq!(code, 0, "{stdout}{stderr}");
        for to in ["fifo", "counted", "clock", "counted", "fifo", "counted"] {
            let args = ["swap", "policy:*", to, "--deadline", "60s", "--json"];
            let (code, stdout, stderr) = stage.run(&args);
            assert_eq!((code, &*stderr), (0, ""), "{stdout}");
            let report: Value = serde_json::from_str(&stdout).expect("a JSON object");
            assert_eq!(report["end"], "committed", "{stdout}");
            used();
        }
        stop.store(true, Relaxed);
        program.join().expect("every page was as it was written")
    });
    let (_, stdout, _) = stage.run(&["plugins", "--json"]);
    let loaded: Value = serde_json::from_str(&stdout).expect("one plugin");
    let counted = &loaded["implementations"][1];
    assert_eq!((&counted["name"], &counted["objects"]), (&"counted".into(), &1.into()), "{stdout}");
    assert_eq!(counted["panics"], 0, "{stdout}");
    let (_, stdout, _) = stage.run(&["ls", "policy:*"]);
    assert!(stdout.contains("counted@"), "{stdout}");
    // The upgrade also applies to every future mount.
    let (code, stdout, stderr) = stage.run(&["upgrade", "policy", "clock"]);
    assert_eq!(code, 0, "{stdout}{stderr}");
    assert!(fs::read(&file).expect("read") == expected);
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
    assert!(fs::read(stage.path("source").join("a")).expect("it is there") == expected);
}
