//! The kernel's own swap: a group of processes with a memory limit, and a file that it swaps to.
//! Both are removed with this value.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The memory controller of the first version of cgroups, and the second version.
const FIRST: &str = "/sys/fs/cgroup/memory";
const SECOND: &str = "/sys/fs/cgroup";
/// The longest time until a control group without processes can be removed.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Group {
    folder: PathBuf,
    /// The file, once the kernel swaps to it.
    _file: SwapFile,
}

/// The swap file; dropped after the group, when nothing is swapped any more.
struct SwapFile(PathBuf);

impl Group {
    /// Creates a group with a limit of `memory` MiB, and a swap file of `swap` MiB.
    pub(crate) fn new(memory: usize, swap: usize) -> Result<Self, String> {
        let file = SwapFile::new(swap)?;
        let name = format!("refit-bench-{}", std::process::id());
        let first = Path::new(FIRST).join("memory.limit_in_bytes").exists();
        let folder = Path::new(if first { FIRST } else { SECOND }).join(name);
        if !first {
            // Most hosts have this setting already; if it fails, the limit cannot be set, and that
            // is reported.
            let _ = fs::write(Path::new(SECOND).join("cgroup.subtree_control"), "+memory");
        }
        fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let group = Self { folder, _file: file };
        let limit = group.folder.join(if first { "memory.limit_in_bytes" } else { "memory.max" });
        let written = fs::write(&limit, (memory << 20).to_string());
        written.map_err(|e| format!("{}: {e}", limit.display()))?;
        Ok(group)
    }

    /// Returns the command that starts another one within the group.
    pub(crate) fn enter(&self) -> Vec<String> {
        let processes = self.folder.join("cgroup.procs");
        let script = "echo $$ > \"$0\" && exec \"$@\"";
        ["sh", "-c", script, &processes.to_string_lossy()].map(str::to_owned).into()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let began = Instant::now();
        // Processes that have ended leave the group soon.
        while fs::remove_dir(&self.folder).is_err() && began.elapsed() < REMOVAL_TIMEOUT {
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.folder.exists() {
            eprintln!("bench: {} is left: a process is in it", self.folder.display());
        }
    }
}

impl SwapFile {
    fn new(mebibytes: usize) -> Result<Self, String> {
        let path = PathBuf::from(format!("/var/tmp/refit-bench-{}.swap", std::process::id()));
        let wrong = |what: &str, why: String| format!("{what} {}: {why}", path.display());
        let mut file = File::create(&path).map_err(|e| wrong("making", e.to_string()))?;
        let own = Self(path.clone());
        let private = fs::set_permissions(&path, Permissions::from_mode(0o600));
        private.map_err(|e| wrong("making", e.to_string()))?;
        // Without holes, because the kernel writes to its blocks.
        for _ in 0..mebibytes {
            file.write_all(&[0; 1 << 20]).map_err(|e| wrong("filling", e.to_string()))?;
        }
        file.sync_all().map_err(|e| wrong("filling", e.to_string()))?;
        for command in ["mkswap", "swapon"] {
            let output = Command::new(command).arg(&path).output();
            let output = output.map_err(|e| wrong(command, e.to_string()))?;
            if !output.status.success() {
                let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(wrong(command, why));
            }
        }
        Ok(own)
    }
}

impl Drop for SwapFile {
    fn drop(&mut self) {
        let name = self.0.to_string_lossy().into_owned();
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        if swaps.lines().any(|line| line.split_whitespace().next() == Some(&name)) {
            let done = Command::new("swapoff").arg(&self.0).status();
            if !done.is_ok_and(|status| status.success()) {
                eprintln!("bench: {name} is left: `swapoff` failed");
                return;
            }
        }
        let _ = fs::remove_file(&self.0);
    }
}
