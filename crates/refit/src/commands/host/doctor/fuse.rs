//! The checks of what serving directories requires of FUSE.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::finding::{CAP_SYS_ADMIN, Finding, capable, read, words};

/// Checks the device by which the kernel sends requests.
pub(super) fn device() -> Finding {
    let path = "/dev/fuse";
    let usable = fs::OpenOptions::new().read(true).write(true).open(path);
    let (found, remedy) = match &usable {
        Ok(_) => (format!("{path} can be opened"), ""),
        Err(e) => trouble(path, e),
    };
    Finding::new("fuse", usable.is_ok(), found).required().or("no directory can be served", remedy)
}

/// Returns the reason that the device cannot be opened, and the remedy.
fn trouble(path: &str, error: &std::io::Error) -> (String, &'static str) {
    match error.kind() {
        ErrorKind::NotFound => (
            format!("there is no {path}"),
            "modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN",
        ),
        ErrorKind::PermissionDenied => (
            format!("{path}: {}", words(&error.to_string())),
            "run refit as root, or `chmod 666 /dev/fuse`, as distributions do; in a container: --device /dev/fuse",
        ),
        _ => (format!("{path}: {}", words(&error.to_string())), "modprobe fuse"),
    }
}

pub(super) fn mounting() -> Finding {
    let helper = ["/usr/bin/fusermount3", "/bin/fusermount3", "/usr/local/bin/fusermount3"]
        .into_iter()
        .find(|path| Path::new(path).exists());
    let (ok, found) = match (capable(CAP_SYS_ADMIN), helper) {
        (true, _) => (true, "this user may mount".to_owned()),
        (false, Some(helper)) => (true, format!("{helper} mounts for this user")),
        (false, None) => {
            (false, "this user may not mount, and fusermount3 is not installed".to_owned())
        }
    };
    Finding::new("permission to mount", ok, found)
        .required()
        .or("no directory can be served", "apt-get install fuse3, or run refit as root")
}

/// Checks whether files can be passed through. A kernel of that version can be built without it,
/// which `refit mount` finds.
pub(super) fn passthrough(kernel: Option<(u32, u32)>) -> Finding {
    let (ok, found) =
        match (kernel.is_some_and(|version| version >= (6, 9)), capable(CAP_SYS_ADMIN)) {
            (true, true) => (true, "the kernel passes files through to the host"),
            (true, false) => (false, "this user may not have the kernel pass files through"),
            (false, _) => (false, "the kernel passes no files through"),
        };
    Finding::new("passthrough", ok, found.to_owned()).or(
        "`refit mount --cache passthrough` does not work",
        "boot Linux 6.9 or newer with CONFIG_FUSE_PASSTHROUGH, and run refit as root",
    )
}

/// Reports whether the kernel offers requests through `io_uring` (Linux 6.14). Refit does not use
/// it (decision 19), so nothing is lost without it.
pub(super) fn rings() -> Finding {
    let offered = match read("/sys/module/fuse/parameters/enable_uring").as_str() {
        "Y" => "the kernel offers it",
        "N" => "the kernel has it, switched off",
        _ => "the kernel does not have it",
    };
    let found = format!("{offered}; refit reads /dev/fuse, whose requests a kernel sends again");
    Finding::new("fuse by io_uring", true, found)
}

/// Checks whether the kernel ends a mount whose server is late with an answer (Linux 6.15).
pub(super) fn request_timeouts() -> Finding {
    let seconds = |name| read(&format!("/proc/sys/fs/fuse/{name}")).parse().unwrap_or(0);
    let limit = request_timeout(seconds("default_request_timeout"), seconds("max_request_timeout"));
    let found = limit.map_or_else(
        || "the kernel waits for the answers of a server".to_owned(),
        |limit| format!("the kernel ends a mount after {limit} s without an answer"),
    );
    Finding::new("late answers", limit.is_none(), found).or(
        "one answer that takes longer, from a slow disk or while refit is stopped, ends a mount",
        "sysctl fs.fuse.default_request_timeout=0 fs.fuse.max_request_timeout=0, then mount again",
    )
}

/// Returns after how many seconds the kernel ends a mount whose server has not asked for any limit.
/// In both settings, 0 means none.
fn request_timeout(default: u64, max: u64) -> Option<u64> {
    [default, max].into_iter().filter(|&seconds| seconds > 0).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_for_the_fuse_device_fits_what_is_wrong_with_it() {
        let remedy = |kind: ErrorKind| trouble("/dev/fuse", &kind.into()).1;
        assert!(remedy(ErrorKind::NotFound).contains("modprobe"));
        let denied = remedy(ErrorKind::PermissionDenied);
        assert!(!denied.contains("modprobe") && denied.contains("chmod"), "{denied}");
    }

    #[test]
    fn the_shorter_limit_of_late_answers_counts() {
        assert_eq!(request_timeout(0, 0), None);
        assert_eq!(request_timeout(30, 0), Some(30));
        assert_eq!(request_timeout(0, 20), Some(20));
        assert_eq!(request_timeout(30, 20), Some(20));
    }
}
