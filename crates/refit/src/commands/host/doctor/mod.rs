//! `refit doctor`: checks the facilities of this host.
//!
//! Each check reports its result; for a missing facility, also the cost of its absence and the
//! remedy. The command fails only if a facility is missing that the file server requires.

mod finding;
mod fuse;

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use refit_splice::process::{Program, Refusal, Still};
use refit_sys::launch;
use refit_sys::pagemap::{Pagemap, Scan};
use refit_sys::pidfd::Pidfd;
use refit_sys::processor::Source;
use refit_sys::userfault::Features;
use rustix::process::{Resource, getrlimit};

use self::finding::{
    CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE, Finding, capable, number_off, read, words,
};
use crate::commands::programs::tend::SWAP;
use crate::failure::Failure;
use crate::output::Output;

/// Runs and prints every check.
pub(crate) fn run(out: &mut Output) -> Result<(), Failure> {
    let findings = findings();
    for finding in &findings {
        if out.json() {
            out.object(finding)?;
            continue;
        }
        let word = match (finding.ok, finding.required) {
            (true, _) => "ok",
            (false, true) => "MISSING",
            (false, false) => "missing",
        };
        out.line(&format!("{word:<8} {:<20} {}", finding.name, finding.found))?;
        if !finding.ok {
            out.line(&format!("{:29} costs: {}", "", finding.cost))?;
            out.line(&format!("{:29} to get it: {}", "", finding.remedy))?;
        }
    }
    let missing: Vec<&str> =
        findings.iter().filter(|f| f.required && !f.ok).map(|f| f.name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::new(
        "check this host",
        format!("a mount cannot work without {}", missing.join(", ")),
        "see the remedies above",
    ))
}

fn findings() -> Vec<Finding> {
    vec![
        kernel(),
        procfs(),
        fuse::device(),
        fuse::mounting(),
        fuse::request_timeouts(),
        resending(),
        fuse::passthrough(kernel_version()),
        fuse::rings(),
        memfd(),
        rseq(),
        membarrier(),
        processors(),
        open_files(),
        userfaultfd(),
        seccomp(),
        descriptors(),
        page_scans(),
        memory_limits(),
        ptrace(),
        splicing(),
        perf_events(),
        network_namespaces(),
        sleep(),
    ]
}

/// Returns the version of the running kernel.
fn kernel_version() -> Option<(u32, u32)> {
    version(&rustix::system::uname().release().to_string_lossy())
}

fn kernel() -> Finding {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let ok = kernel_version().is_some_and(|v| v >= (5, 4));
    Finding::new("kernel", ok, format!("Linux {release}"))
        .required()
        .or("refit is not tested before Linux 5.4", "boot a newer kernel")
}

/// Checks whether the kernel sends requests again that a server has not answered.
fn resending() -> Finding {
    let ok = kernel_version().is_some_and(|v| v >= (6, 9));
    let found = if ok {
        "the kernel sends unanswered requests again"
    } else {
        "the kernel does not send unanswered requests again"
    };
    Finding::new("held mounts", ok, found.to_owned()).or(
        "mounts end if their server crashes, and cannot be handed over",
        "boot Linux 6.9 or newer",
    )
}

/// Checks procfs, from which nearly all knowledge about processes is read.
fn procfs() -> Finding {
    let own = fs::read_link("/proc/self")
        .is_ok_and(|to| to == Path::new(&std::process::id().to_string()));
    let found = if own {
        "/proc is mounted"
    } else {
        "/proc is not mounted, or is of another PID namespace"
    };
    Finding::new("procfs", own, found).required().or(
        "nothing can be served, limited, watched or moved, and the checks below may be wrong",
        "mount -t proc proc /proc",
    )
}

fn memfd() -> Finding {
    let made = rustix::fs::memfd_create("refit-doctor", rustix::fs::MemfdFlags::CLOEXEC);
    let found = match &made {
        Ok(_) => "page frames can be created".to_owned(),
        Err(e) => words(&e.to_string()),
    };
    Finding::new("memfd", made.is_ok(), found).required().or(
        "no directory can be served: there are no page frames",
        "allow memfd_create in the sandbox that forbids it",
    )
}

fn rseq() -> Finding {
    let source = refit_sys::processor::source();
    let ok = source == Source::Rseq;
    let found = match source {
        Source::Rseq => "reports the current processor",
        Source::GetCpu => "the C library does not register it",
        Source::Simulated => "REFIT_PROCESSORS simulates processors",
    };
    Finding::new("rseq", ok, found).or(
        "some nanoseconds in each call and each count of a probe, to find the processor",
        "a kernel with CONFIG_RSEQ, and glibc 2.35 or later",
    )
}

fn membarrier() -> Finding {
    let ok = refit_sys::barrier::prepare() == refit_sys::barrier::Kind::Membarrier;
    Finding::new("membarrier", ok, if ok { "private expedited" } else { "not available" }).or(
        "a fence in every call to an object, some nanoseconds each",
        "a kernel with CONFIG_MEMBARRIER; allow membarrier in the sandbox that forbids it",
    )
}

fn processors() -> Finding {
    let n = std::thread::available_parallelism().map_or(1, usize::from);
    Finding::new("processors", n > 1, format!("{n} for this process")).or(
        "partitioned caches gain nothing over shared ones",
        "give the machine or the container more processors",
    )
}

fn open_files() -> Finding {
    let limit = getrlimit(Resource::Nofile);
    let enough = 65_536;
    let ok = limit.maximum.is_none_or(|n| n >= enough);
    let show = |n: Option<u64>| n.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    let found = format!("{} now, up to {}", show(limit.current), show(limit.maximum));
    Finding::new("open files", ok, found).or(
        "programs that keep very many files open will see EMFILE",
        "ulimit -Hn 1048576 as root, or LimitNOFILE= in the unit",
    )
}

/// The cost of a missing facility of limits and moves.
const MEMORY: &str = "programs cannot be limited (`refit run --memory`) or moved (`refit move`)";

/// The cost of a missing facility of limits.
const LIMITS: &str = "programs cannot be limited: no `refit run --memory`, no `refit limit`";

/// The userfaultfd features that reports of a program's faults, and their resolution, require.
const FAULTS: Features = Features::PAGEFAULT_FLAG_WP
    .union(Features::MISSING_SHMEM)
    .union(Features::MINOR_SHMEM)
    .union(Features::THREAD_ID)
    .union(Features::WP_HUGETLBFS_SHMEM)
    .union(Features::WP_UNPOPULATED)
    .union(Features::POISON)
    .union(Features::WP_ASYNC);

fn userfaultfd() -> Finding {
    let (ok, found) = match refit_sys::userfault::offered() {
        Ok(offered) if offered.contains(FAULTS) => {
            (true, "available, with all features that refit needs".to_owned())
        }
        Ok(offered) => {
            let lacking: Vec<&str> =
                (FAULTS - offered).iter_names().map(|(name, _)| name).collect();
            (false, format!("available, but lacks {}", lacking.join(", ")))
        }
        Err(e) => (false, format!("not available to this user: {}", words(&e.to_string()))),
    };
    Finding::new("userfaultfd", ok, found).or(
        MEMORY,
        "sysctl vm.unprivileged_userfaultfd=1, or a group for /dev/userfaultfd; features: Linux 6.7",
    )
}

fn seccomp() -> Finding {
    let offered = refit_sys::seccomp::offered();
    let found = found(&offered, "refit can answer system calls of programs");
    Finding::new("seccomp listeners", offered.is_ok(), found).or(
        MEMORY,
        "Linux 5.0 with CONFIG_SECCOMP_FILTER; allow seccomp in the sandbox that forbids it",
    )
}

/// Checks the duplication of descriptors on one of this process.
fn descriptors() -> Finding {
    let taken = rustix::fs::memfd_create("refit-doctor", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(std::io::Error::from)
        .and_then(|file| {
            let number = file.as_raw_fd().cast_unsigned();
            Pidfd::open(std::process::id())?.get_fd(number)
        });
    let found = found(&taken, "refit can duplicate open files of programs");
    Finding::new("pidfd_getfd", taken.is_ok(), found)
        .or(LIMITS, "Linux 5.6; allow pidfd_open and pidfd_getfd in the sandbox that forbids them")
}

/// Checks page scans on memory of this process, where nothing is mapped.
fn page_scans() -> Finding {
    let scanned = Pagemap::of(std::process::id())
        .and_then(|pages| pages.scan(0..4096, &Scan::default(), &mut Vec::new()));
    let found = found(&scanned, "reports which pages were written");
    Finding::new("PAGEMAP_SCAN", scanned.is_ok(), found)
        .or(LIMITS, "Linux 6.7 with CONFIG_PROC_PAGE_MONITOR")
}

fn memory_limits() -> Finding {
    let tried = refit_limits::can_limit(Path::new(SWAP));
    let found = match &tried {
        Ok(()) => format!("programs can be limited, with a swap file in {SWAP}"),
        Err(why) => number_off(&why.to_string()).to_owned(),
    };
    Finding::new("memory limits", tried.is_ok(), found)
        .or(LIMITS, "Linux 6.8; run refit as root, or with CAP_SYS_PTRACE; room in /var/tmp")
}

fn found<T>(tried: &std::io::Result<T>, there: &str) -> String {
    tried.as_ref().map_or_else(|e| words(&e.to_string()), |_| there.to_owned())
}

fn ptrace() -> Finding {
    let scope = read("/proc/sys/kernel/yama/ptrace_scope");
    let ok = match scope.as_str() {
        // Programs that refit starts are its children, and may be traced.
        "" | "0" => true,
        "3" => false,
        _ => capable(CAP_SYS_PTRACE),
    };
    let found = match (scope.as_str(), capable(CAP_SYS_PTRACE)) {
        ("", false) => "programs of the same user (no Yama)".to_owned(),
        ("", true) => "programs of every user (no Yama)".to_owned(),
        (scope, true) => format!("kernel.yama.ptrace_scope = {scope}, with CAP_SYS_PTRACE"),
        (scope, false) => format!("kernel.yama.ptrace_scope = {scope}, without CAP_SYS_PTRACE"),
    };
    Finding::new("ptrace", ok, found).or(
        "code can be spliced at most into programs that refit starts (`refit probe -- COMMAND`)",
        "sysctl kernel.yama.ptrace_scope=0 (3 stays until the next boot), or run refit as root",
    )
}

/// Checks whether code can be changed, on a child that executes this program and has not run its
/// first instruction.
fn splicing() -> Finding {
    let tried = try_splicing();
    let found = match &tried {
        Ok(stood) => {
            let stood = crate::format::nanos(stood.as_nanos() as u64);
            format!("the code of a stopped program can be written (stopped for {stood})")
        }
        Err(why) => words(why),
    };
    Finding::new("splicing", tried.is_ok(), found).or(
        "no probes: nothing can be spliced into programs",
        "allow ptrace in the sandbox that forbids it; boot with proc_mem.force_override=ptrace",
    )
}

fn try_splicing() -> Result<Duration, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut child = launch::at_entry(&mut Command::new(own)).map_err(|e| e.to_string())?;
    let tried = rewrite(child.id()).map_err(|e| e.to_string());
    // The child has not begun, and is not needed any more.
    let _ = child.kill();
    let _ = child.wait();
    tried
}

/// Overwrites a byte of a program's code with its own value.
fn rewrite(id: u32) -> Result<Duration, Refusal> {
    let program = Program::open(id)?;
    let mappings = program.mappings()?;
    let code = mappings.iter().find(|one| one.executable && one.readable && !one.writable);
    let at = code.map(|code| code.range.start).ok_or(Refusal::NoSyscall { id })?;
    let write = |_: &mut Still<'_>| {
        let mut byte = [0];
        let written = program.read(at, &mut byte).and_then(|()| program.write(at, &byte));
        written.map_err(|source| Refusal::System { id, what: "write its code", source })
    };
    program.stand_still(Duration::from_secs(10), write).map(|((), stood)| stood)
}

fn perf_events() -> Finding {
    let level = read("/proc/sys/kernel/perf_event_paranoid");
    let value: i32 = level.parse().unwrap_or(4);
    let ok = value < 1 || capable(CAP_PERFMON) || capable(CAP_SYS_ADMIN);
    let found = match level.as_str() {
        "" => "not supported by this kernel".to_owned(),
        level => format!("kernel.perf_event_paranoid = {level}"),
    };
    Finding::new("perf events", ok && !level.is_empty(), found).or(
        "no processor events in recordings; splicing does not need them",
        "sysctl kernel.perf_event_paranoid=0",
    )
}

fn sleep() -> Finding {
    let device = refit_sys::cpu_latency::DEVICE;
    let (ok, found) = match refit_sys::cpu_latency::Awake::hold() {
        Ok(_) => (true, format!("idle processors can be kept awake ({device})")),
        Err(e) => (false, format!("{device}: {}", words(&e.to_string()))),
    };
    Finding::new("sleep", ok, found).or(
        "no `refit boot --awake`: calls and moves between instances wait for idle processors to wake up",
        "run refit as root, or let a group of this user write to the device",
    )
}

fn network_namespaces() -> Finding {
    let there = Path::new("/proc/self/ns/net").exists();
    let user = read("/proc/sys/user/max_user_namespaces").parse::<u64>().unwrap_or(0) > 0
        && read("/proc/sys/kernel/unprivileged_userns_clone") != "0";
    let ok = there && (user || capable(CAP_SYS_ADMIN));
    Finding::new("network namespaces", ok, if ok { "can be created" } else { "cannot be created" })
        .or(
            "the tests with several hosts cannot run",
            "sysctl user.max_user_namespaces=10000, or run refit as root",
        )
}

/// Returns the major and minor number of a kernel.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_kernel_versions() {
        assert_eq!(version("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(version("5.4"), Some((5, 4)));
        assert_eq!(version("linux"), None);
        assert!(Some((4, 18)) < version("6.1"));
    }

    #[test]
    fn whatever_is_missing_says_what_it_costs_and_how_to_get_it() {
        for finding in findings() {
            assert_eq!(finding.ok, finding.cost.is_empty(), "{finding:?}");
            assert_eq!(finding.ok, finding.remedy.is_empty(), "{finding:?}");
            assert!(!finding.found.is_empty(), "{finding:?}");
        }
        let missing = Finding::new("x", false, "y").or("z", "w");
        assert_eq!((missing.cost, missing.remedy), ("z", "w"));
    }
}
