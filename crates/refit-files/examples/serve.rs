//! Serves a directory until its standard input ends: `serve SOURCE MOUNTPOINT [kernel|direct|auto] [FRAMES_MIB]
//! [IMPLEMENTATION] [WORKERS]`.

use refit_files::{CacheMode, MountOptions, mount};
use std::io::Read;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (source, mountpoint) = (next("."), next("/mnt"));
    let cache = match next("kernel").as_str() {
        "direct" => CacheMode::Direct,
        "auto" => CacheMode::Auto,
        _ => CacheMode::Kernel,
    };
    let frames_bytes = next("256").parse::<u64>().unwrap_or(256) << 20;
    let implementation = next("shared");
    let options = MountOptions {
        source: source.into(),
        mountpoint: mountpoint.into(),
        frames_bytes,
        cache,
        workers: next("").parse().ok(),
        implementation,
        allow_other: false,
        read_only: false,
    };
    let mount = match mount(options) {
        Ok(mount) => mount,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    eprintln!("ready");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    eprintln!("{:?}", mount.stats());
    if let Err(error) = mount.unmount() {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
