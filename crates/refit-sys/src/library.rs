//! Shared libraries loaded from memory, mapped for as long as the process lives.
//!
//! The library is passed as bytes and opened through an anonymous file: no path could be replaced
//! between a check and the load, and the dynamic linker cannot know the name already. The file
//! stays open, so that its number names no other library later. The library is never unmapped:
//! threads may still have destructors of it to run.

use std::ffi::{CStr, CString, c_void};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

/// A mapped library, which stays mapped.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    handle: NonNull<c_void>,
}

// SAFETY: a handle of `dlopen` may be used from every thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// Maps a library and runs its constructors. `/proc/PID/maps` shows `name`.
///
/// # Errors
/// The message of the host or of the dynamic linker.
pub fn open(bytes: &[u8], name: &str) -> Result<Library, String> {
    let file = anonymous(bytes, name)?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = CString::new(path).map_err(|error| error.to_string())?;
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
    // SAFETY: the path is a C string. The caller asked for whatever the constructors do.
    let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
    let Some(handle) = NonNull::new(handle) else { return Err(last_error()) };
    let _stays_open = file.into_raw_fd();
    Ok(Library { handle })
}

/// Loads a library in another process, which runs its constructors and destructors and ends, so
/// that any damage is confined to that process. The process is `true`, into which the dynamic
/// linker preloads the library. Where there is no such program, or it is linked statically, nothing
/// is tried and the result is `Ok`.
///
/// # Errors
/// How that process ended, if not well; or the dynamic linker's message.
pub fn try_out(bytes: &[u8], name: &str, timeout: Duration) -> Result<(), String> {
    let io = |error: std::io::Error| format!("the trial: {error}");
    let (file, said) = (anonymous(bytes, name)?, File::from(memory_file("said")?));
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let mut command = Command::new("true");
    command.env_clear().env("LD_PRELOAD", path).env("LD_BIND_NOW", "1");
    // `true` is searched for in the `PATH` of this process.
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said.try_clone().map_err(io)?);
    let Ok(mut child) = command.spawn() else { return Ok(()) };
    let until = Instant::now().checked_add(timeout);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(io)? {
            break status;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            let _ = child.kill(); // It may have ended just now.
            child.wait().map_err(io)?;
            return Err(format!("its constructors did not return within {timeout:?}"));
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

/// Reads the beginning of a file as text.
fn beginning(mut file: File) -> std::io::Result<String> {
    const MAX_MESSAGE: u64 = 4096;
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_MESSAGE).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Creates a sealed file without a path that holds these bytes.
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
    // Hosts that forbid executable anonymous files by default allow them with this flag; old
    // kernels do not know it.
    memfd_create(&*name, flags | MemfdFlags::EXEC)
        .or_else(|_| memfd_create(&*name, flags))
        .map_err(|error| format!("no anonymous file: {error}"))
}

impl Library {
    /// Returns the address of a symbol.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: the handle is never closed; the name is a C string.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }
}

fn last_error() -> String {
    // SAFETY: `dlerror` returns null, or a C string that is valid until the next call of this
    // thread.
    let text = unsafe { libc::dlerror().as_ref().map(|text| CStr::from_ptr(text)) };
    text.map_or_else(|| "no reason given".into(), |text| text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_tells_what_the_linker_says() {
        let said = try_out(b"not a library", "none", Duration::from_secs(60));
        // Where `true` is linked statically, nothing is tried.
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
