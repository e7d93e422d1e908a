//! The real [`System`]: a stand-in until the object system and the file server are there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;

use refit_change::{Change, End, Phase, Report, Timeline};

use crate::refusal::Refusal;
use crate::system::{Served, SwapRequest, System};
use crate::wire::{CacheMode, MountRequest, ObjectInfo};

/// The objects and file servers of this process.
pub fn host() -> Arc<dyn System> {
    Arc::new(Host { objects: Mutex::default() })
}

struct Host {
    objects: Mutex<Vec<ObjectInfo>>,
}

impl System for Host {
    fn objects(&self) -> Vec<ObjectInfo> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn swap(&self, request: &SwapRequest) -> Report {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        let object = &mut objects[usize::try_from(request.object).unwrap_or(0) - 1];
        let change = Change::new(
            request.change,
            "swap",
            &object.name,
            &object.implementation,
            &request.implementation,
            &request.owner,
        );
        object.implementation.clone_from(&request.implementation);
        let mut timeline = Timeline::begin();
        for phase in [Phase::Install, Phase::Quiesce, Phase::Transfer, Phase::Commit] {
            timeline.enter(phase);
        }
        Report {
            change,
            phases: timeline.end(),
            end: End::Committed,
            forwarded: 3,
            blocked: 1,
            longest_block_ns: 900,
            blockers: vec![],
        }
    }

    fn mount(&self, request: &MountRequest) -> Result<Box<dyn Served>, Refusal> {
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        for i in 1..=30 {
            objects.push(ObjectInfo {
                id: i,
                name: format!("fcm:/file{i}"),
                interface: "fcm".into(),
                implementation: request.implementation.clone(),
                implementations: vec!["shared".into(), "partitioned".into()],
                reps: 1,
                misses: 2,
                stats: BTreeMap::from([("size".into(), 123_456), ("calls".into(), 99)]),
            });
        }
        Ok(Box::new(Mounted(request.source.clone(), request.mountpoint.clone())))
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
