//! The mounts of an instance: the file server as the instance uses it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use parking_lot::{Mutex, RwLock};
use refit_files::{AdoptError, MountError, MountOptions, MountStats, UnmountError, Users};
use refit_objects::ObjectId;
use refit_objects::composition::Plan;
use refit_sys::descriptors::Descriptors;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::path_text;
use crate::refusal::{Kind, Refusal};
use crate::system::Served;
use crate::wire::{CacheMode, ClassInfo, FileInfo, MountRequest};

/// Mounts a directory.
pub(crate) fn mount(request: &MountRequest) -> Result<Box<dyn Served>, Refusal> {
    let mount = refit_files::mount(options(request)).map_err(|e| not_mounted(&e))?;
    let description = Description { request: request.clone(), rules: Vec::new() };
    let served = FileServer::new(mount, description);
    served.remember(&[]);
    Ok(Box::new(served))
}

/// A mount that is about to be continued, and that another server may still serve.
pub struct PreparedMount {
    adoption: refit_files::Adoption,
    description: Description,
    /// The description as the image contained it.
    text: Vec<u8>,
}

/// A mount that is continued as soon as its server begins.
pub struct AdoptedMount {
    adopted: refit_files::Adopted,
    description: Description,
}

/// The part of a mount that the next server needs to know besides its state. The image contains it
/// as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Description {
    /// The request for the mount. Its composition has the implementations that serve now.
    request: MountRequest,
    /// The cache modes that were set since, by patterns.
    rules: Vec<(String, CacheMode)>,
}

impl Description {
    fn plan(&self) -> Plan {
        match &self.request.composition {
            Some(plan) => plan.clone(),
            None => refit_files::composition(&self.request.implementation),
        }
    }

    /// Returns the name of the mount among the objects.
    fn name(&self) -> String {
        path_text::text(&self.request.mountpoint)
    }
}

impl PreparedMount {
    /// Prepares to continue a mount by its image, with the descriptors of its server's process.
    ///
    /// # Errors
    ///
    /// Returns what prevented it.
    pub fn new(image: OwnedFd, from: &dyn Descriptors) -> Result<Self, Refusal> {
        let copy = image.try_clone().map_err(|error| not_continued(&error))?;
        let text = refit_files::description(copy).map_err(|error| not_continued(&error))?;
        let description: Description =
            serde_json::from_slice(&text).map_err(|error| not_continued(&error))?;
        let options = options(&description.request);
        let prepared = refit_files::Adoption::prepare(options, image, from);
        prepared.map(|adoption| Self { adoption, description, text }).map_err(not_adopted)
    }

    /// Takes over the state of the mount, whose server has ended.
    ///
    /// # Errors
    ///
    /// Returns what prevented it.
    pub fn complete(self, from: &dyn Descriptors, crashed: bool) -> Result<AdoptedMount, Refusal> {
        let Self { adoption, description, text } = self;
        if adoption.description() != text {
            return Err(not_continued(&"its options have changed meanwhile"));
        }
        let adopted = adoption.complete(from, crashed).map_err(not_adopted)?;
        description.rules.iter().for_each(|(glob, mode)| {
            adopted.add_cache_mode(glob, (*mode).into());
        });
        Ok(AdoptedMount { adopted, description })
    }
}

impl AdoptedMount {
    /// Returns the number of the memfd by which another server can continue the mount.
    pub fn image(&self) -> RawFd {
        self.adopted.image()
    }

    /// Returns the name of the mount among the objects.
    pub(crate) fn name(&self) -> String {
        self.description.name()
    }

    /// Lets programs only read, as long as this server serves; see [`refit_files::Adopted`].
    pub fn read_only(&self) {
        self.adopted.read_only();
    }

    /// Creates the objects of these files, as far as they had some.
    pub(crate) fn open_data(&self, files: &[Vec<u8>]) {
        if !files.is_empty() {
            self.adopted.open_data(|path| files.iter().any(|file| file == path));
        }
    }

    /// Begins to serve the mount.
    ///
    /// # Errors
    ///
    /// Returns what prevented it.
    pub fn serve(self) -> Result<Box<dyn Served>, Refusal> {
        let Self { adopted, description } = self;
        let mount = adopted.serve().map_err(not_adopted)?;
        Ok(Box::new(FileServer::new(mount, description)))
    }
}

fn not_continued(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        Kind::Failed,
        "continue a mount",
        error.to_string(),
        "mount again; `umount -l` removes what is left of the mount",
    )
}

fn not_adopted(error: AdoptError) -> Refusal {
    match error {
        AdoptError::Server(error) => not_mounted(&error),
        error => refusal(Kind::Failed, &error.to_string()),
    }
}

fn options(request: &MountRequest) -> MountOptions {
    MountOptions {
        source: request.source.clone(),
        mountpoint: request.mountpoint.clone(),
        frames_bytes: request.frames_bytes,
        cache: request.cache.into(),
        workers: request.workers,
        composition: match &request.composition {
            Some(plan) => plan.clone(),
            None => refit_files::composition(&request.implementation),
        },
        users: users(request),
        read_only: request.read_only,
        xattrs: !request.no_xattrs,
        awake: request.awake,
    }
}

/// A mount of the file server. Unmounting takes the mount by value and returns it if it is in use,
/// so it is kept in an option that is empty only after the end of the mount.
struct FileServer {
    source: PathBuf,
    mountpoint: PathBuf,
    mount: RwLock<Option<refit_files::Mount>>,
    /// The description of the mount, which the image contains as text.
    description: Mutex<Description>,
    described: Mutex<Vec<u8>>,
}

impl FileServer {
    fn new(mount: refit_files::Mount, description: Description) -> Self {
        Self {
            source: mount.source().to_owned(),
            mountpoint: mount.mountpoint().to_owned(),
            mount: RwLock::new(Some(mount)),
            description: Mutex::new(description),
            described: Mutex::default(),
        }
    }

    /// Puts the description into the image, unless it is there.
    fn describe(&self, description: &Description) {
        let text = serde_json::to_vec(description).unwrap_or_default();
        let mut described = self.described.lock();
        if *described == text {
            return;
        }
        // One that does not fit keeps the mount from being continued as it is now.
        if !self.ask(true, |mount| mount.describe(&text)) {
            warn!(mountpoint = ?self.mountpoint, "the options of the mount are too long to be kept");
        }
        *described = text;
    }

    fn ask<T>(&self, otherwise: T, question: impl FnOnce(&refit_files::Mount) -> T) -> T {
        let mount = self.mount.read();
        mount.as_ref().map_or(otherwise, question)
    }
}

impl Served for FileServer {
    fn source(&self) -> &Path {
        &self.source
    }

    fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    fn ended(&self) -> bool {
        self.ask(true, refit_files::Mount::ended)
    }

    fn set_cache_mode(&self, path_glob: &str, mode: CacheMode) -> Option<usize> {
        let files = self.ask(Some(0), |mount| mount.set_cache_mode(path_glob, mode.into()))?;
        let mut description = self.description.lock();
        description.rules.retain(|(glob, _)| glob != path_glob);
        description.rules.push((path_glob.to_owned(), mode));
        self.describe(&description);
        Some(files)
    }

    fn remember(&self, classes: &[ClassInfo]) {
        let mut description = self.description.lock();
        let (name, mut plan) = (description.name(), description.plan());
        for class in classes.iter().filter(|class| class.factory == name) {
            for part in plan.parts.values_mut() {
                let interface = part.block.split_once(':').map(|(interface, _)| interface);
                if interface == Some(class.class.as_str()) {
                    part.block = format!("{}:{}", class.class, class.implementation);
                }
            }
        }
        if plan != description.plan() {
            description.request.composition = Some(plan);
        }
        self.describe(&description);
    }

    fn implementation(&self, interface: &str) -> Option<String> {
        let parts = self.description.lock().plan().parts;
        let blocks = parts.values().filter_map(|part| part.block.split_once(':'));
        let mut found = blocks.filter(|(exported, _)| *exported == interface);
        found.next().map(|(_, implementation)| implementation.to_owned())
    }

    fn read_only(&self) -> bool {
        self.ask(false, refit_files::Mount::is_read_only)
    }

    fn file_use(&self, inode: u64) -> Option<FileInfo> {
        let file = self.ask(None, |mount| mount.file_use(inode))?;
        Some(FileInfo {
            path: OsString::from_vec(file.path).into(),
            opens: file.opens,
            writers: file.writers,
            passed_through: file.passed_through,
            cache: file.cache.into(),
            object: file.object.map(ObjectId::to_bits),
        })
    }

    fn stats(&self) -> BTreeMap<String, u64> {
        let stats = self.ask(MountStats::default(), refit_files::Mount::stats);
        [
            ("requests", stats.requests),
            ("replies", stats.replies),
            ("errors", stats.errors),
            ("panics", stats.panics),
            ("reads", stats.reads),
            ("writes", stats.writes),
            ("read_bytes", stats.bytes_read),
            ("written_bytes", stats.bytes_written),
            ("inodes", stats.inodes),
            ("open_files", stats.files.open),
            ("shared_files", stats.files.shared),
            ("passed_through_files", stats.files.passed_through),
            ("waiting_for_write_back", stats.waiting_for_write_back),
            ("write_back_errors", stats.write_back_errors),
            ("changed_beside", stats.changed_beside),
            ("written_over", stats.written_over),
        ]
        .into_iter()
        .map(|(key, n)| (key.to_owned(), n))
        .collect()
    }

    fn unmount(&self, discard: bool) -> Result<(), Refusal> {
        let mut slot = self.mount.write();
        let Some(mount) = slot.take() else { return Ok(()) };
        let outcome = if discard { mount.unmount_and_discard().map(drop) } else { mount.unmount() };
        let Err(error) = outcome else { return Ok(()) };
        let kind = match error {
            UnmountError::Busy { .. }
            | UnmountError::Elsewhere { .. }
            | UnmountError::NotStored { .. } => Kind::Busy,
            _ => Kind::Failed,
        };
        let refusal = refusal(kind, &error.to_string());
        match error {
            UnmountError::Busy { mount }
            | UnmountError::Elsewhere { mount, .. }
            | UnmountError::NotStored { mount, .. }
            | UnmountError::System { mount, .. } => *slot = Some(*mount),
            UnmountError::Lost { .. } => {}
        }
        Err(refusal)
    }

    fn write_back(&self) {
        // Files that cannot be stored are tried again later.
        let _ = self.ask(Ok(()), refit_files::Mount::write_back);
    }

    fn image(&self) -> Option<RawFd> {
        self.ask(None, refit_files::Mount::image)
    }

    fn detach(&self) -> Result<(), Refusal> {
        let mut slot = self.mount.write();
        let Some(mount) = slot.take() else { return Ok(()) };
        let files = mount.detach();
        if files.is_empty() {
            return Ok(());
        }
        let operation = format!("unmount {}", self.mountpoint.display());
        let source = self.source.display();
        let obstacle = format!("{files} could not be stored in {source} and is lost");
        Err(Refusal::new(Kind::Failed, operation, obstacle, ""))
    }
}

fn not_mounted(error: &MountError) -> Refusal {
    let kind = match error {
        MountError::SourceMissing(_) | MountError::MountpointMissing(_) => Kind::Unknown,
        MountError::NoCache(_) => Kind::Unknown,
        MountError::Composition(_)
        | MountError::SourceNotDirectory(_)
        | MountError::MountpointNotDirectory(_)
        | MountError::MountpointInSource { .. }
        | MountError::TooFewFrames { .. }
        | MountError::TooManyFrames { .. }
        | MountError::Workers { .. } => Kind::Malformed,
        MountError::SourceUnreadable { .. }
        | MountError::NotPermitted { .. }
        | MountError::NotPrivate
        | MountError::FuseNotPermitted => Kind::Forbidden,
        MountError::AlreadyMounted(_) | MountError::DeadMount(_) | MountError::Served { .. } => {
            Kind::Busy
        }
        _ => Kind::Failed,
    };
    refusal(kind, &error.to_string())
}

/// Splits an error of the file server, which has the form `what was asked: what prevented it; what
/// to do`.
fn refusal(kind: Kind, text: &str) -> Refusal {
    let (operation, rest) = text.split_once(": ").unwrap_or(("serve a directory", text));
    let (obstacle, remedy) = rest.split_once("; ").unwrap_or((rest, ""));
    Refusal::new(kind, operation, obstacle, remedy)
}

fn users(request: &MountRequest) -> Users {
    match (request.private, request.allow_other) {
        (true, _) => Users::RootUnchecked,
        (false, true) => Users::All,
        (false, false) => Users::Owner,
    }
}

impl From<CacheMode> for refit_files::CacheMode {
    fn from(mode: CacheMode) -> Self {
        match mode {
            CacheMode::Kernel => Self::Kernel,
            CacheMode::Direct => Self::Direct,
            CacheMode::Auto => Self::Auto,
            CacheMode::Passthrough => Self::Passthrough,
            CacheMode::Exclusive => Self::Exclusive,
        }
    }
}

impl From<refit_files::CacheMode> for CacheMode {
    fn from(mode: refit_files::CacheMode) -> Self {
        match mode {
            refit_files::CacheMode::Kernel => Self::Kernel,
            refit_files::CacheMode::Direct => Self::Direct,
            refit_files::CacheMode::Auto => Self::Auto,
            refit_files::CacheMode::Passthrough => Self::Passthrough,
            refit_files::CacheMode::Exclusive => Self::Exclusive,
        }
    }
}
