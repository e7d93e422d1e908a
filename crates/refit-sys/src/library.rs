//! Shared libraries from memory, mapped for as long as the process lives.
//!
//! The library is given as bytes and opened through an anonymous file: it has no path that could be replaced between a
//! check and the load, and no name under which the dynamic linker could know it already. The file stays open, so that
//! its number names no other library later. The library is never unmapped: threads may have destructors of it to run.

use std::ffi::{CStr, CString, c_void};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// A library that is mapped, and stays so.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    handle: NonNull<c_void>,
}

// SAFETY: a handle of `dlopen` may be used from every thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// Maps a library and runs its constructors. `name` is shown in `/proc/PID/maps`.
///
/// # Errors
/// What the host or the dynamic linker says.
pub fn open(bytes: &[u8], name: &str) -> Result<Library, String> {
    let file = anonymous(bytes, name)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = CString::new(path).map_err(|error| error.to_string())?;
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
    // SAFETY: the path is a C string. What constructors do is what the caller asked for.
    let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
    let Some(handle) = NonNull::new(handle) else { return Err(last_error()) };
    let _stays_open = file.into_raw_fd();
    Ok(Library { handle })
}

/// Has another process map a library, run its constructors and destructors and end: what they break is broken there.
/// That process is `true`, into which the dynamic linker loads the library first. Where there is no such program, or
/// it is linked statically, nothing is tried, and nothing found.
///
/// # Errors
/// How that process ended, if not well, or what the dynamic linker said.
pub fn try_out(bytes: &[u8], name: &str, patience: Duration) -> Result<(), String> {
    let io = |error: std::io::Error| format!("the trial: {error}");
    let (file, said) = (anonymous(bytes, name)?, File::from(memory_file("said")?));
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let mut command = Command::new("true");
    command.env_clear().env("LD_PRELOAD", path).env("LD_BIND_NOW", "1");
    // The search for `true` is that of this process.
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.try_clone().map_err(io)?);
    let Ok(mut child) = command.spawn() else { return Ok(()) };
    let until = Instant::now().checked_add(patience);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(io)? {
            break status;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            let _ = child.kill(); // It may have ended just now.
            child.wait().map_err(io)?;
            return Err(format!("its constructors did not return within {patience:?}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let said = beginning(said).map_err(io)?;
    if status.success() && !said.contains("cannot be preloaded") {
        return Ok(());
    }
    let said = said.lines().next().unwrap_or_default();
    Err(format!("it ended with {status}{}{said}", if said.is_empty() { "" } else { ": " }))
}

/// The beginning of a file, as text.
fn beginning(mut file: File) -> std::io::Result<String> {
    const MOST: u64 = 4096;
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(MOST).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A file without a path that holds these bytes, for ever.
fn anonymous(bytes: &[u8], name: &str) -> Result<File, String> {
    let mut file = File::from(memory_file(name)?);
    file.write_all(bytes).map_err(|error| format!("the anonymous file: {error}"))?;
    let sealed = fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW);
    sealed.map_err(|error| format!("the anonymous file: {error}"))?;
    Ok(file)
}

fn memory_file(name: &str) -> Result<OwnedFd, String> {
    let name: String = name.chars().filter(|c| *c != '\0').take(100).collect();
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Hosts that forbid programs in anonymous files by default allow them to who says so; old kernels do not know it.
    memfd_create(&*name, flags | MemfdFlags::EXEC)
        .or_else(|_| memfd_create(&*name, flags))
        .map_err(|error| format!("no anonymous file: {error}"))
}

impl Library {
    /// The address of a symbol.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is never closed; the name is a C string.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }
}

fn last_error() -> String {
    // SAFETY: gives a C string that is valid until the next call of this thread, or null.
    let text = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
    text.map_or_else(|| "no reason given".into(), |text| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_tells_what_the_linker_says() {
        let said = try_out(b"not a library", "none", Duration::from_secs(60));
        // Where `true` is linked statically nothing is tried.
        assert!(
            said.as_ref().err().is_none_or(|why| why.contains("cannot be preloaded")),
            "{said:?}"
        );
    }

    #[test]
    fn what_is_no_library_is_refused_with_the_linkers_words() {
        let error = open(b"not a library", "name\0with zero").expect_err("no ELF");
        assert!(error.contains("invalid ELF header") || error.contains("too short"), "{error}");
    }
}
