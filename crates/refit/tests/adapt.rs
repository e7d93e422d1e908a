//! Caches that are swapped by how they are used.

mod stage;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use stage::Stage;
use stage::running::until;

const PAGE: u64 = 4096;
const PAGES: u64 = 256;

/// Reads pages in an order in which none follows another.
fn reads(file: &File, stop: &AtomicBool) {
    let mut page = 0;
    while !stop.load(Ordering::Relaxed) {
        page = (page + 97) % PAGES;
        file.read_exact_at(&mut [0; PAGE as usize], page * PAGE).expect("it can be read");
    }
}

#[test]
fn a_file_that_several_read_is_partitioned_for_as_long_as_somebody_adapts() {
    let stage = Stage::new();
    let Some(serving) = stage.serve_with(&["--cache", "direct"]) else { return };
    let path = serving.mountpoint.join("file");
    fs::write(&path, vec![7; (PAGES * PAGE) as usize]).unwrap();
    // Any share of calls that overlap another is enough, since how many do is a matter of timing.
    let mut command = stage.refit(&["adapt", "fcm:*", "--every", "20ms", "--above", "100"]);
    command.args(["--overlap-above", "0", "--overlap-below", "0"]);
    let adapts = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let partitioned = || {
        let listed = stage.run(&["--json", "ls", "fcm:*", "--implementation", "partitioned"]);
        listed.1.lines().count()
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            let file = File::open(&path).unwrap();
            scope.spawn(|| {
                let file = file;
                reads(&file, &stop);
            });
        }
        until("a swap to what suits it", || partitioned() > 0);
        stop.store(true, Ordering::Relaxed);
    });
    kill_process(Pid::from_child(&adapts), Signal::INT).expect("it runs");
    let output = adapts.wait_with_output().expect("it ends");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success() && text.contains("shared → partitioned "), "{text}");
    until("all put back", || {
        let (_, listed, _) = stage.run(&["--json", "ls", "fcm:*"]);
        partitioned() == 0 && !listed.contains("\"name\":\"concurrency\"")
    });
    let refused = ["adapt", "--overlap-above", "4", "--overlap-below", "6"];
    stage.refuses(&refused, "swapping above 4 % and back below 6 % would never end");
}
