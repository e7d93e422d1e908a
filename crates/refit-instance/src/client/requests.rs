//! The requests of a client, one call each. Other requests are defined beside their routes.

use std::path::{Path, PathBuf};

use axum::body::Bytes;

use super::{Client, Lines, WORK_TIMEOUT, get, post, request, understood, with_query};
use crate::refusal::Refusal;
use crate::wire::{
    Adapt, CacheAnswer, CacheMode, CacheRequest, ChangesQuery, ClassInfo, EndRecordQuery, FileInfo,
    Health, JournalLine, KnownWrapper, Mount, MountRequest, ObjectInfo, ObjectQuery, Pause,
    ProcessInfo, RecordRequest, Recorded, Swap, Unwrap, Upgrade, UpgradeLine, Wrap,
};

impl Client {
    /// Returns the health of the instance.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn health(&self) -> Result<Health, Refusal> {
        self.get("read its health", "/health")
    }

    /// Returns the metrics of the instance as OpenMetrics text.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn metrics(&self) -> Result<String, Refusal> {
        let operation = "read metrics";
        let text = self.body(self.timeout, operation, get(operation, "/metrics")?)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns the objects whose names match, sorted by name.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn objects(&self, glob: &str) -> Result<Vec<ObjectInfo>, Refusal> {
        self.objects_of(glob, None)
    }

    /// Returns the objects whose names match, of one mount if given, sorted by name.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn objects_of(&self, glob: &str, mount: Option<&str>) -> Result<Vec<ObjectInfo>, Refusal> {
        let operation = format!("list {glob}");
        let query = ObjectQuery { glob: Some(glob.to_owned()), mount: mount.map(str::to_owned) };
        self.get(&operation, &with_query(&operation, "/objects", &query)?)
    }

    /// Swaps objects. The reports arrive as the changes end.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request. Nothing has been swapped then.
    pub fn swap(&self, swap: &Swap) -> Result<Lines<refit_change::Report>, Refusal> {
        let operation = format!("swap {} to {}", swap.glob, swap.implementation);
        self.lines(&operation, post(&operation, "/swap", swap)?)
    }

    /// Swaps caches according to their use for as long as the lines are read. The reports arrive as
    /// the changes end.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn adapt(&self, adapt: &Adapt) -> Result<Lines<refit_change::Report>, Refusal> {
        let operation = format!("adapt {}", adapt.glob);
        self.lines(&operation, post(&operation, "/adapt", adapt)?)
    }

    /// Returns the classes, with an entry for each factory.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn classes(&self) -> Result<Vec<ClassInfo>, Refusal> {
        self.get("list classes", "/classes")
    }

    /// Upgrades a class. The lines contain its progress and, at the end, its report.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request. Nothing has been swapped then.
    pub fn upgrade(&self, upgrade: &Upgrade) -> Result<Lines<UpgradeLine>, Refusal> {
        let operation = format!("upgrade {} to {}", upgrade.class, upgrade.implementation);
        self.lines(&operation, post(&operation, "/upgrade", upgrade)?)
    }

    /// Pauses or resumes the upgrade of a class.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn pause(&self, class: &str, paused: bool) -> Result<(), Refusal> {
        let operation =
            format!("{} the upgrade of {class}", if paused { "pause" } else { "resume" });
        let body = Pause { class: class.to_owned(), paused };
        self.body(self.timeout, &operation, post(&operation, "/pause", &body)?).map(drop)
    }

    /// Wraps objects. The reports arrive as the changes end.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request. Nothing has been wrapped then.
    pub fn wrap(&self, wrap: &Wrap) -> Result<Lines<refit_change::Report>, Refusal> {
        let operation = format!("wrap {} in {}", wrap.glob, wrap.wrapper);
        self.lines(&operation, post(&operation, "/wrap", wrap)?)
    }

    /// Removes wrappers from objects. The reports arrive as the changes end.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request. Nothing has been unwrapped then.
    pub fn unwrap(&self, unwrap: &Unwrap) -> Result<Lines<refit_change::Report>, Refusal> {
        let operation = format!("unwrap {}", unwrap.glob);
        self.lines(&operation, post(&operation, "/unwrap", unwrap)?)
    }

    /// Returns the wrappers that can be attached.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn wrappers(&self) -> Result<Vec<KnownWrapper>, Refusal> {
        self.get("list wrappers", "/wrappers")
    }

    /// Reads the journal.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn changes(&self, query: &ChangesQuery) -> Result<Lines<JournalLine>, Refusal> {
        let operation = "read the journal";
        let path = with_query(operation, "/changes", query)?;
        self.lines(operation, get(operation, &path)?)
    }

    /// Returns the processes of the program that runs under the instance, sorted by number.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn processes(&self) -> Result<Vec<ProcessInfo>, Refusal> {
        self.get("list processes", "/processes")
    }

    /// Returns the mounts.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn mounts(&self) -> Result<Vec<Mount>, Refusal> {
        self.get("list mounts", "/mounts")
    }

    /// Returns the use of the regular file of a mount that programs see under an inode number;
    /// `None` if the kernel knows no such file.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn file(&self, mount: u32, inode: u64) -> Result<Option<FileInfo>, Refusal> {
        let operation = format!("show file {inode}");
        self.find(&operation, &format!("/mounts/{mount}/files/{inode}"))
    }

    /// Mounts a directory. Returns when the mount serves requests.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request. Nothing is mounted then.
    pub fn mount(&self, mount: &MountRequest) -> Result<Mount, Refusal> {
        let operation = format!("mount {}", mount.mountpoint.display());
        let answer = self.body(WORK_TIMEOUT, &operation, post(&operation, "/mounts", mount)?)?;
        understood(&operation, &answer)
    }

    /// Makes the instance take part in the recording whose session is at the path.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn record(&self, session: &Path) -> Result<(), Refusal> {
        let operation = format!("record into {}", session.display());
        let body = RecordRequest { session: session.to_owned() };
        self.body(self.timeout, &operation, post(&operation, "/record", &body)?).map(drop)
    }

    /// Returns the paths of the sessions in which the instance takes part.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn recorded(&self) -> Result<Vec<PathBuf>, Refusal> {
        self.get::<Recorded>("list its recordings", "/record").map(|recorded| recorded.sessions)
    }

    /// Makes the instance leave the recording that it joined with this path.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn end_record(&self, session: &Path) -> Result<(), Refusal> {
        let operation = "end the recording";
        let query = EndRecordQuery { session: Some(crate::path_text::text(session)) };
        let path = with_query(operation, "/record", &query)?;
        let request = request(operation, "DELETE", &path, Bytes::new())?;
        self.body(self.timeout, operation, request).map(drop)
    }

    /// Unmounts. Returns when everything has been stored. With `discard`, data that cannot be
    /// stored is discarded.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request. The mount continues then.
    pub fn unmount(&self, id: u32, discard: bool) -> Result<(), Refusal> {
        let operation = format!("unmount mount {id}");
        let request = request(
            &operation,
            "DELETE",
            &format!("/mounts/{id}?discard={discard}"),
            Bytes::new(),
        )?;
        self.body(WORK_TIMEOUT, &operation, request).map(drop)
    }

    /// Changes the cache mode of the matching files. Returns how many of them the kernel currently
    /// knows.
    ///
    /// # Errors
    ///
    /// The instance does not answer or refuses the request.
    pub fn set_cache_mode(&self, glob: &str, mode: CacheMode) -> Result<u64, Refusal> {
        let operation = format!("change the cache mode of {glob}");
        let body = CacheRequest { glob: glob.to_owned(), mode };
        let answer = self.body(WORK_TIMEOUT, &operation, post(&operation, "/cache", &body)?)?;
        understood::<CacheAnswer>(&operation, &answer).map(|answer| answer.files)
    }
}
