//! The errors of loading and unloading plugins. Each names the file, the obstacle and the remedy.

use std::path::{Path, PathBuf};

/// The error that a plugin was not loaded, or not unloaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("refused: {}: {obstacle}; {}", .path.display(), .obstacle.remedy())]
pub struct LoadError {
    /// The file.
    pub path: Box<Path>,
    /// The obstacle.
    pub obstacle: Obstacle,
}

/// An obstacle to loading a plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Obstacle {
    /// The file could not be read.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The file is too long, or wants too much memory.
    #[error("{what} is {bytes} bytes, more than {limit}")]
    TooLarge {
        /// The part of the file.
        what: &'static str,
        /// Its size.
        bytes: u64,
        /// The maximum.
        limit: u64,
    },
    /// The file is not a shared library.
    #[error("it is not a shared library: {0}")]
    NotALibrary(String),
    /// The file was compiled for another kind of machine.
    #[error("it was compiled for {has}, this host is {wants}")]
    Target {
        /// The target of the file.
        has: String,
        /// The target of the host.
        wants: String,
    },
    /// The file is a library, but its parts are not where its headers say.
    #[error("the file is damaged: {0}")]
    Damaged(String),
    /// The file has no note.
    #[error("it has no refit note (section .note.refit)")]
    NoNote,
    /// The file has a note that cannot be read.
    #[error("its refit note is damaged: {0}")]
    BadNote(String),
    /// Its note has another format.
    #[error("its refit note has format {has}, this host reads format {wants}")]
    Format {
        /// The format of the note.
        has: u32,
        /// The format that the host reads.
        wants: u32,
    },
    /// Its panics abort the process.
    #[error("it was compiled with panic = \"abort\": a panic in it would end the host")]
    Aborts,
    /// The host has no such interface.
    #[error(
        "{implementation} implements interface {interface}, which this host does not load; it loads: {known}"
    )]
    UnknownInterface {
        /// The implementation.
        implementation: String,
        /// Its interface.
        interface: String,
        /// The interfaces that the host loads.
        known: String,
    },
    /// The canonical state differs.
    #[error("interface {interface}: the plugin's state is {has}, the host's {wants}")]
    State {
        /// The interface.
        interface: &'static str,
        /// The plugin's state.
        has: String,
        /// The host's state.
        wants: &'static str,
    },
    /// A method differs, has moved, or was removed.
    #[error(
        "interface {interface}, method {index} {method}: plugin (version {has_version}) has {has}, \
         the host (version {wants_version}) {wants}{}", used_by(.users)
    )]
    Method {
        /// The interface.
        interface: &'static str,
        /// The index of the method.
        index: usize,
        /// The name of the host's method.
        method: &'static str,
        /// The plugin's method at that index.
        has: Box<str>,
        /// The plugin's version of the interface.
        has_version: u32,
        /// The signature of the host's method.
        wants: &'static str,
        /// The host's version of the interface.
        wants_version: u32,
        /// Some of the objects through which it is used.
        users: Vec<String>,
    },
    /// The plugin is older, and lacks a method that has no body in the trait.
    #[error(
        "interface {interface}: plugin (version {has_version}) does not have method {method}, {wants}, of version \
         {wants_version}, and the interface has no default body for it{}", used_by(.users)
    )]
    Missing {
        /// The interface.
        interface: &'static str,
        /// The method.
        method: &'static str,
        /// Its signature.
        wants: &'static str,
        /// The plugin's version of the interface.
        has_version: u32,
        /// The host's version of the interface.
        wants_version: u32,
        /// Some of the objects through which it is used.
        users: Vec<String>,
    },
    /// The host has an implementation of this name.
    #[error("{interface} already has a built-in implementation {name:?}")]
    Taken {
        /// The interface.
        interface: String,
        /// The name.
        name: String,
    },
    /// A name that no implementation can have.
    #[error("{0:?} cannot be the name of an implementation")]
    BadName(String),
    /// The same code is loaded already.
    #[error("this code (build id {build_id}) is already loaded, from {}", .from.display())]
    AlreadyLoaded {
        /// The build id of the code.
        build_id: String,
        /// The file from which it was loaded.
        from: PathBuf,
    },
    /// The plugin could not be loaded in a separate process, or broke that process.
    #[error("a trial load in another process failed: {0}")]
    Trial(String),
    /// The dynamic linker has refused it.
    #[error("the dynamic linker refused it: {0}")]
    Linker(String),
    /// The contents of memory differ from the note.
    #[error("its exports differ from its refit note: {0}")]
    Differs(String),
    /// No plugin of this name is loaded.
    #[error("no such plugin is loaded")]
    NotLoaded,
    /// Code is never unmapped.
    #[error(
        "loaded code stays mapped: threads may be in it or have destructors of it to run, which nobody can \
         count{}", used_by(.objects)
    )]
    NeverUnloaded {
        /// Some of the objects that it serves.
        objects: Vec<String>,
    },
}

fn used_by(users: &[String]) -> String {
    if users.is_empty() { String::new() } else { format!("; used by {}", users.join(", ")) }
}

impl Obstacle {
    /// Returns the remedy.
    pub fn remedy(&self) -> String {
        match self {
            Obstacle::Unreadable(_) => "check the path and its permissions".into(),
            Obstacle::TooLarge { .. } => "strip it, or split it".into(),
            Obstacle::NotALibrary(_) | Obstacle::NoNote => {
                "build a crate of type cdylib that calls refit_objects::plugin!".into()
            }
            Obstacle::Target { wants, .. } => format!("build it for {wants}"),
            Obstacle::Damaged(_) | Obstacle::BadNote(_) | Obstacle::Differs(_) => {
                "build it again, and copy it whole".into()
            }
            Obstacle::Format { .. } => "build it with the refit-objects of this host".into(),
            Obstacle::Aborts => "build it with panic = \"unwind\"".into(),
            Obstacle::UnknownInterface { .. } => {
                "load it into a host that has the interface".into()
            }
            Obstacle::State { wants, .. } => format!("rebuild against state {wants}"),
            Obstacle::Method { wants_version, .. } | Obstacle::Missing { wants_version, .. } => {
                format!("rebuild against version {wants_version}, or put an adapter between")
            }
            Obstacle::Taken { .. } | Obstacle::BadName(_) => "give it another name".into(),
            Obstacle::AlreadyLoaded { .. } => "nothing needs to be done; list plugins with `refit plugins`".into(),
            Obstacle::Trial(_) => {
                "see what its constructors do: LD_PRELOAD=./PLUGIN.so gdb true".into()
            }
            Obstacle::Linker(_) => "install what it needs, or link it in".into(),
            Obstacle::NotLoaded => "list plugins with `refit plugins`".into(),
            Obstacle::NeverUnloaded { .. } => {
                "swap its objects to another implementation; the code is unmapped when the process ends".into()
            }
        }
    }
}
