//! The real [`System`]: the objects of this process and the file servers in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use refit_change::Report;
use refit_objects::{ObjectId, SwapOptions};

use crate::refusal::Refusal;
use crate::system::{Served, SwapRequest, System};
use crate::wire::{CacheMode, MountRequest, ObjectInfo};

/// The objects and file servers of this process.
pub fn host() -> Arc<dyn System> {
    Arc::new(Host)
}

struct Host;

impl System for Host {
    fn objects(&self) -> Vec<ObjectInfo> {
        refit_objects::objects().into_iter().map(ObjectInfo::from).collect()
    }

    fn object(&self, id: u64) -> Option<ObjectInfo> {
        refit_objects::object(ObjectId::from_bits(id)).map(ObjectInfo::from)
    }

    fn swap(&self, request: &SwapRequest) -> Report {
        let defaults = SwapOptions::default();
        let options = SwapOptions {
            deadline: request.deadline.unwrap_or(defaults.deadline),
            cancel: Some(Arc::clone(&request.cancel)),
            owner: request.owner.clone(),
            ..defaults
        };
        let object = ObjectId::from_bits(request.object);
        refit_objects::swap_named(object, &request.implementation, request.change, &options)
    }

    fn mount(&self, request: &MountRequest) -> Result<Box<dyn Served>, Refusal> {
        Ok(Box::new(Mounted(request.source.clone(), request.mountpoint.clone())))
    }
}

impl From<refit_objects::ObjectInfo> for ObjectInfo {
    fn from(object: refit_objects::ObjectInfo) -> Self {
        ObjectInfo {
            id: object.id.to_bits(),
            name: object.name,
            interface: object.interface.to_owned(),
            implementation: object.implementation,
            implementations: object.implementations.into_iter().map(str::to_owned).collect(),
            reps: object.reps as u64,
            misses: object.misses,
            stats: object.stats.into_iter().map(|(key, n)| (key.to_owned(), n)).collect(),
        }
    }
}

struct Mounted(PathBuf, PathBuf);

impl Served for Mounted {
    fn source(&self) -> &Path {
        &self.0
    }

    fn mountpoint(&self) -> &Path {
        &self.1
    }

    fn ended(&self) -> bool {
        false
    }

    fn set_cache_mode(&self, _: &str, _: CacheMode) -> usize {
        1
    }

    fn stats(&self) -> BTreeMap<String, u64> {
        BTreeMap::new()
    }

    fn unmount(&self) -> Result<(), Refusal> {
        Ok(())
    }

    fn detach(&self) -> Result<(), Refusal> {
        Ok(())
    }
}
