//! File caches on a real mount transfer their pages by the requested protocol while a program uses
//! them.

mod stage;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use refit_sys::memory::PAGE_SIZE;
use rustix::process::Signal;
use stage::Stage;

const PAGES: usize = 1_500;

/// Writes pages in turn, reads each back at once, and returns the final contents of the file.
fn use_file(path: &Path, stop: &AtomicBool) -> Vec<u8> {
    let file: File = OpenOptions::new().read(true).write(true).open(path).expect("it is there");
    let mut expected = vec![0; PAGES * PAGE_SIZE];
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let at = round * 7 % PAGES * PAGE_SIZE;
        let bytes = vec![round as u8; PAGE_SIZE];
        file.write_all_at(&bytes, at as u64).expect("written");
        let mut read = vec![0; PAGE_SIZE];
        file.read_exact_at(&mut read, at as u64).expect("read");
        assert!(read == bytes, "page {} in round {round}", at / PAGE_SIZE);
        expected[at..at + PAGE_SIZE].copy_from_slice(&bytes);
    }
    expected
}

#[test]
fn pages_go_in_every_protocol_while_a_program_writes_them() {
    let stage = Stage::new();
    let Some(mut serving) = stage.serve() else { return };
    let file = stage.path("mnt").join("a");
    fs::write(&file, vec![0; PAGES * PAGE_SIZE]).expect("written");
    // Data in the kernel's cache would never reach the swapped cache.
    let (code, _, stderr) = stage.run(&["cache", "fcm:/a", "direct"]);
    assert_eq!(code, 0, "{stderr}");
    let stop = AtomicBool::new(false);
    let expected = std::thread::scope(|scope| {
        let program = scope.spawn(|| use_file(&file, &stop));
        let protocols = ["partitions", "lazy", "canonical", "stripes", "lazy"].repeat(5);
        for (round, protocol) in protocols.iter().enumerate() {
            let to = ["partitioned", "shared"][round % 2];
            let args =
                ["swap", "fcm:/a", to, "--protocol", protocol, "--deadline", "60s", "--json"];
            let (code, stdout, stderr) = stage.run(&args);
            assert_eq!((code, &*stderr), (0, ""), "{stdout}");
            let report: serde_json::Value = serde_json::from_str(&stdout).expect("a JSON object");
            assert_eq!(report["end"], "committed", "{stdout}");
            assert_eq!(report["transfers"][0]["route"][0], *protocol, "{stdout}");
            let left = &report["transfers"][0]["drained"]["left"];
            assert_eq!(left.as_u64(), (*protocol == "lazy").then_some(0), "{stdout}");
        }
        stop.store(true, Ordering::Relaxed);
        program.join().expect("every page was as it was written")
    });
    assert!(fs::read(&file).expect("read") == expected);
    serving.signal(Signal::TERM);
    assert_eq!(serving.wait(), 0);
    assert!(fs::read(stage.path("source").join("a")).expect("it is there") == expected);
}
