//! `refit mount`: runs an instance until it is told to stop.
//!
//! Ctrl-C (or SIGTERM, or SIGHUP) unmounts: dirty data is stored, and the mount is removed. If a
//! program still uses it, or data cannot be stored, this is reported, and the mount continues to be
//! served; a second Ctrl-C detaches it even while programs use it. Files that could not be stored
//! in the end are named, and the exit code is 1. When another process has unmounted everything, the
//! instance ends by itself. With `--until-eof` it ends together with the program at the other end
//! of its standard input.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;
use std::{fs, io};

use clap::Args;
use clap::builder::ValueHint;
use clap::error::ErrorKind;
use refit_instance::wire::{MountRequest, Plan};
use refit_instance::{Instance, InstanceOptions, host};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::mounts::CacheArg;
use crate::failure::Failure;
use crate::format;
use crate::output::Output;

/// Arguments of `refit mount`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Example:
  refit mount ~/data /mnt/data --frames 256M
  refit mount ~/data /mnt/data --compose plan.json

Ctrl-C unmounts. If the mount is in use, or data cannot be written back, a second Ctrl-C detaches the mount \
even while it is in use, and discards that data. The exit code is 1 if data was lost.

A plan names parts. For each part it gives the block (INTERFACE:IMPLEMENTATION) and the part to which each port connects. \
refit checks the plan before it mounts anything. The default plan:
  {\"parts\": {
    \"cache\": {\"block\": \"fcm:shared\", \"connect\": {\"fr\": \"file\", \"pm\": \"memory\"}},
    \"file\": {\"block\": \"fr:host\"},
    \"memory\": {\"block\": \"pm:sweep\", \"connect\": {\"policy\": \"replacement\"}},
    \"replacement\": {\"block\": \"policy:clock\"}}}")]
pub(crate) struct MountArgs {
    /// Directories to serve, each with its mountpoint: one or more pairs
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "MOUNTPOINT"])]
    #[arg(value_hint = ValueHint::DirPath)]
    pairs: Vec<PathBuf>,

    /// Memory for cached pages of each mount
    #[arg(long, default_value = "256M", value_parser = format::parse_size, value_name = "SIZE")]
    frames: u64,

    /// Cache mode
    #[arg(long, default_value = "auto", value_enum, value_name = "MODE")]
    cache: CacheArg,

    /// Number of serving threads (default: one per processor)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,

    /// Initial implementation of file caches: shared or partitioned
    #[arg(long, default_value = "shared", value_name = "NAME")]
    implementation: String,

    /// Build mounts from the plan in this JSON file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "implementation")]
    compose: Option<PathBuf>,

    /// Serve read-only: refuse writes
    #[arg(long)]
    read_only: bool,

    /// Keep processors out of idle states while programs use the mounts: quicker answers, for more
    /// power (root only)
    #[arg(long)]
    awake: bool,

    /// Let other users access the mount (their own permissions still apply)
    #[arg(long)]
    allow_other: bool,

    /// Let only root access the mount, who mounts, and have the kernel check no permissions: fewer
    /// requests to refit
    #[arg(long, conflicts_with = "allow_other")]
    private: bool,

    /// Serve no extended attributes, for a mount that other users cannot use: fewer requests to
    /// refit
    #[arg(long, conflicts_with = "allow_other")]
    no_xattrs: bool,

    /// Unmount also when standard input ends, even while the mount is in use: for programs that
    /// start refit and must not leave it running
    #[arg(long)]
    pub(super) until_eof: bool,

    /// Keep the mounts through a crash of the server: another server continues them, and programs
    /// only wait meanwhile (the default)
    #[arg(long, overrides_with = "no_hold")]
    hold: bool,

    /// Serve from the process that is started: the mounts end with it
    #[arg(long, overrides_with = "hold")]
    no_hold: bool,
}

impl MountArgs {
    /// Returns whether another process serves, and this one holds the mounts.
    pub(super) fn is_held(&self) -> bool {
        !self.no_hold
    }

    /// Returns the directories to serve, each with its mount point, as absolute paths.
    pub(super) fn pairs(&self) -> Result<Vec<(PathBuf, PathBuf)>, Failure> {
        let absolute = |path: &PathBuf| {
            std::path::absolute(path).map_err(|error| {
                let operation = format!("serve {}", path.display());
                Failure::new(operation, error.to_string(), "give an absolute path")
            })
        };
        let pairs = pairs(&self.pairs)?.iter();
        pairs.map(|[source, at]| Ok((absolute(source)?, absolute(at)?))).collect()
    }

    /// Returns whether the user has asked for that.
    pub(super) fn must_be_held(&self) -> bool {
        self.hold
    }
}

/// The interval at which the instance checks whether its mounts have been unmounted by others.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Serialize)]
struct Serving<'a> {
    #[serde(serialize_with = "refit_instance::path_text::serialize")]
    serving: &'a Path,
    #[serde(serialize_with = "refit_instance::path_text::serialize")]
    source: &'a Path,
    instance: u32,
}

/// Mounts and serves.
pub(crate) fn run(args: &MountArgs, out: &mut Output) -> Result<(), Failure> {
    let requests = requests(args)?;
    // Installed before anything is mounted: a Ctrl-C during a slow start must not leave a mount
    // behind.
    let events = events(args.until_eof)?;
    let instance = Instance::start(host(), InstanceOptions::of_this_user()?)?;
    mount(&instance, &requests)?;
    announce(&instance, args, out)?;
    until_the_end(&instance, &events, || {})
}

/// Makes the mounts of an instance: all of them or none.
pub(super) fn mount(instance: &Instance, requests: &[MountRequest]) -> Result<(), Failure> {
    for request in requests {
        if let Err(refusal) = instance.mount(request) {
            return match instance.unmount_all() {
                Ok(()) => Err(refusal.into()),
                Err(mut others) => {
                    others.insert(0, refusal);
                    Err(Failure::Several(others))
                }
            };
        }
    }
    Ok(())
}

/// Prints what an instance serves.
pub(super) fn announce(
    instance: &Instance,
    args: &MountArgs,
    out: &mut Output,
) -> Result<(), Failure> {
    for mount in instance.mounts() {
        let (serving, source) = (&mount.mountpoint, &mount.source);
        if out.json() {
            out.object(&Serving { serving, source, instance: instance.number() })?;
        } else {
            out.line(&format!(
                "refit: {} serves {} with {} of frames; Ctrl-C unmounts (instance {})",
                serving.display(),
                source.display(),
                format::size(args.frames),
                instance.number(),
            ))?;
        }
    }
    // The reader of the output may go away; the mounts stay.
    let _ = out.flush();
    Ok(())
}

/// Serves until an event ends the instance, or all mounts have been unmounted. Calls `look`
/// periodically.
pub(super) fn until_the_end(
    instance: &Instance,
    events: &Receiver<Event>,
    look: impl Fn(),
) -> Result<(), Failure> {
    let outcome = serve(instance, events, look);
    let mut lost = instance.take_lost();
    match outcome {
        Err(Failure::Several(refusals)) => lost.extend(refusals),
        Err(other) if lost.is_empty() => return Err(other),
        Err(_) | Ok(()) => {}
    }
    lost.dedup();
    if lost.is_empty() { Ok(()) } else { Err(Failure::Several(lost)) }
}

/// The events that end an instance.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// Ctrl-C, or a signal with the same meaning.
    Signal,
    /// Standard input has ended.
    Eof,
}

fn serve(instance: &Instance, events: &Receiver<Event>, look: impl Fn()) -> Result<(), Failure> {
    let mut insisted = false;
    while !instance.idle() {
        look();
        match events.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {
                instance.reap();
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Ok(Event::Signal) if insisted => {
                return instance.detach_all().map_err(Failure::Several);
            }
            Ok(Event::Signal) => {
                if let Err(refusals) = instance.unmount_all() {
                    for refusal in refusals {
                        say!("refit: {refusal}");
                    }
                    say!(
                        "refit: still serving; press Ctrl-C again to detach the mount anyway and \
                         discard data that cannot be written back"
                    );
                    insisted = true;
                }
            }
            Ok(Event::Eof) => return end_with_its_owner(instance),
        }
    }
    Ok(())
}

/// Ends the instance together with its owner. Programs that end at the same time get a moment to
/// release the mount; then it is detached.
fn end_with_its_owner(instance: &Instance) -> Result<(), Failure> {
    for _ in 0..10 {
        if instance.unmount_all().is_ok() {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
    instance.detach_all().map_err(Failure::Several)
}

/// Begins to receive the events that end an instance.
pub(super) fn events(until_eof: bool) -> Result<Receiver<Event>, Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|e| {
        Failure::new("wait for Ctrl-C", e.to_string(), "run refit with fewer open files")
    })?;
    let (sender, receiver) = mpsc::channel();
    if until_eof {
        let sender = sender.clone();
        thread::spawn(move || {
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            sender.send(Event::Eof)
        });
    }
    thread::spawn(move || signals.forever().try_for_each(|_| sender.send(Event::Signal)));
    Ok(receiver)
}

/// Returns the mounts that the arguments ask for.
pub(super) fn requests(args: &MountArgs) -> Result<Vec<MountRequest>, Failure> {
    let composition = args.compose.as_deref().map(plan).transpose()?;
    let pairs = pairs(&args.pairs)?;
    Ok(pairs
        .iter()
        .map(|[source, mountpoint]| MountRequest {
            source: source.clone(),
            mountpoint: mountpoint.clone(),
            frames_bytes: args.frames,
            cache: args.cache.into(),
            workers: args.workers.map(usize::from),
            implementation: args.implementation.clone(),
            composition: composition.clone(),
            allow_other: args.allow_other,
            private: args.private,
            read_only: args.read_only,
            no_xattrs: args.no_xattrs,
            awake: args.awake,
        })
        .collect())
}

/// Returns the directories to serve, each with its mount point.
fn pairs(paths: &[PathBuf]) -> Result<&[[PathBuf; 2]], Failure> {
    let (pairs, rest) = paths.as_chunks::<2>();
    if let [alone] = rest {
        return Err(Failure::usage(
            ErrorKind::WrongNumberOfValues,
            format!("{} has no mountpoint; give pairs of SOURCE and MOUNTPOINT", alone.display()),
        ));
    }
    Ok(pairs)
}

/// Reads a composition.
fn plan(path: &Path) -> Result<Plan, Failure> {
    let operation = || format!("read the composition {}", path.display());
    let text = fs::read_to_string(path)
        .map_err(|e| Failure::new(operation(), e.to_string(), "name a file that can be read"))?;
    serde_json::from_str(&text).map_err(|e| {
        Failure::new(
            operation(),
            e.to_string(),
            "see `refit mount --help` for the format of a plan",
        )
    })
}
