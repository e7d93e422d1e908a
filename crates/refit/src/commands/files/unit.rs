//! `refit install-unit`: a systemd service that mounts, and hands over when it is reloaded.

use std::fs;
use std::io::ErrorKind as Io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Args, Parser};
use serde::Serialize;

use super::mount::MountArgs;
use crate::failure::Failure;
use crate::output::Output;

/// Arguments of `refit install-unit`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  refit install-unit --print -- /srv/data /mnt/data --frames 1G
  refit install-unit -- /srv/data /mnt/data

`systemctl reload` of the service hands the mounts over to the refit that is installed then. Stopping it stores all data \
and unmounts.")]
pub(crate) struct UnitArgs {
    /// Write the unit to standard output instead of a file
    #[arg(long)]
    print: bool,

    /// Replace a file that is there already
    #[arg(long)]
    force: bool,

    /// Arguments of `refit mount`
    #[arg(last = true, required = true, value_name = "MOUNT_ARGUMENT")]
    mount: Vec<String>,
}

/// The arguments of `refit mount`, to check them.
#[derive(Debug, Parser)]
#[command(name = "refit mount", no_binary_name = true)]
struct Checked {
    #[command(flatten)]
    args: MountArgs,
}

#[derive(Serialize)]
struct Installed<'a> {
    #[serde(serialize_with = "refit_instance::path_text::serialize")]
    installed: &'a Path,
}

/// Writes the unit.
pub(super) fn run(args: &UnitArgs, out: &mut Output) -> Result<(), Failure> {
    let checked = Checked::try_parse_from(&args.mount).map_err(Failure::Usage)?;
    let pairs = checked.args.pairs()?;
    let text = unit(&args.mount, &pairs)?;
    if args.print {
        return text.lines().try_for_each(|line| out.line(line));
    }
    let name = format!("refit-{}.service", escaped(&pairs[0].1));
    let path = directory()?.join(&name);
    write(&path, &text, args.force)?;
    if out.json() {
        return out.object(&Installed { installed: &path });
    }
    let user = if rustix::process::geteuid().is_root() { "" } else { " --user" };
    out.line(&format!(
        "{} is written; `systemctl{user} daemon-reload` and `systemctl{user} enable --now {name}` \
         start it",
        path.display()
    ))
}

fn write(path: &Path, text: &str, force: bool) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        let remedy = match error.kind() {
            Io::AlreadyExists => "replace it with --force",
            _ => "print it with --print, and put it where systemd reads it",
        };
        Failure::new(format!("write {}", path.display()), error.to_string(), remedy)
    };
    let parent = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).map_err(failed)?;
    let mut options = fs::OpenOptions::new();
    options.write(true).truncate(true).create(force).create_new(!force);
    let mut file = options.open(path).map_err(failed)?;
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)
}

/// Returns the directory in which systemd looks for units of this user.
fn directory() -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() {
        return Ok("/etc/systemd/system".into());
    }
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let found = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    found.map(|directory| directory.join("systemd/user")).ok_or_else(|| {
        Failure::new("write a unit", "HOME is not set", "set it, or print the unit with --print")
    })
}

/// Returns the text of the unit.
fn unit(mount: &[String], pairs: &[(PathBuf, PathBuf)]) -> Result<String, Failure> {
    let refit = std::env::current_exe().map_err(|error| {
        Failure::new("write a unit", error.to_string(), "start refit by its path")
    })?;
    let refit = quoted(text(&refit)?);
    let absolute = |argument: &String| {
        let path = std::path::absolute(argument).ok()?;
        let named = pairs.iter().any(|(source, at)| *source == path || *at == path);
        named.then_some(path)
    };
    let mut start = vec![refit.clone(), "mount".into()];
    for argument in mount {
        start.push(match absolute(argument) {
            Some(path) => quoted(text(&path)?),
            None => quoted(argument),
        });
    }
    let (source, mountpoint) = &pairs[0];
    let (source, mountpoint) = (text(source)?, text(mountpoint)?);
    let wanted = pairs.iter().map(|(source, _)| Ok(quoted(text(source)?)));
    let wanted = wanted.collect::<Result<Vec<_>, Failure>>()?.join(" ");
    Ok(format!(
        "[Unit]
Description=refit: {} at {}
RequiresMountsFor={wanted}

[Service]
Type=exec
ExecStart={}
# The refit that is installed by then continues the mounts; programs that use them only wait.
ExecReload={refit} handover {}
# The main process passes the signal on; the others get none.
KillMode=mixed
# All data is stored and unmounted.
TimeoutStopSec=10min
Restart=on-failure
# Each inode that the kernel knows needs a descriptor.
LimitNOFILE=1048576

[Install]
WantedBy={}
",
        source.replace('%', "%%"),
        mountpoint.replace('%', "%%"),
        start.join(" "),
        quoted(mountpoint),
        if rustix::process::geteuid().is_root() { "multi-user.target" } else { "default.target" },
    ))
}

fn text(path: &Path) -> Result<&str, Failure> {
    let text = path.to_str().filter(|text| !text.contains(char::is_control));
    text.ok_or_else(|| {
        let what = format!("{} has characters that a unit cannot have", path.display());
        Failure::usage(ErrorKind::InvalidValue, what)
    })
}

/// Returns an argument as systemd reads it in a command line (systemd.service(5)).
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:,+@".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_owned();
    }
    let mut quoted = String::from('"');
    for c in argument.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '%' | '$' => quoted.extend([c, c]),
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns the name of a path within the name of a unit (systemd.unit(5), "String escaping").
fn escaped(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
    let byte = |byte: &u8| match byte {
        b'/' => "-".to_owned(),
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b':' | b'_' | b'.' => char::from(*byte).into(),
        other => format!("\\x{other:02x}"),
    };
    bytes.iter().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_quoted_as_systemd_reads_them() {
        for (plain, expected) in [
            ("/srv/data", "/srv/data"),
            ("", r#""""#),
            ("a b", r#""a b""#),
            (r#"q"\"#, r#""q\"\\""#),
            ("50%$HOME", r#""50%%$$HOME""#),
        ] {
            assert_eq!(quoted(plain), expected);
        }
    }

    #[test]
    fn a_mount_point_names_its_unit() {
        assert_eq!(escaped(Path::new("/mnt/my-data")), r"mnt-my\x2ddata");
    }
}
