//! Serves a directory until its standard input ends, for tests that stop or kill the server:
//! `acceptance-serve SOURCE MOUNTPOINT kernel|direct FRAMES_BYTES [storm]`.

use refit_acceptance::{Pace, Storm};
use refit_files::{CacheMode, MountOptions, Users, mount};
use std::io::Read;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [source, mountpoint, cache, frames, rest @ ..] = &arguments[..] else {
        eprintln!("usage: acceptance-serve SOURCE MOUNTPOINT kernel|direct FRAMES_BYTES [storm]");
        std::process::exit(2);
    };
    let options = MountOptions {
        source: source.into(),
        mountpoint: mountpoint.into(),
        frames_bytes: frames.parse().unwrap_or(1 << 20),
        cache: if cache == "direct" { CacheMode::Direct } else { CacheMode::Kernel },
        workers: None,
        composition: refit_files::composition("shared"),
        users: Users::All,
        read_only: false,
        xattrs: true,
        awake: false,
    };
    let mount = match mount(options) {
        Ok(mount) => mount,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    let storm = (!rest.is_empty()).then(|| Storm::start("fcm:/".into(), Pace::EachMillisecond));
    println!("serving");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(storm);
    drop(mount);
}
