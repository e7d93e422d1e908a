//! The changes of the objects of an instance since they were created, which the next server makes
//! again before it serves: plugins, implementations and wrappers.
//!
//! A change of a class is kept with the options of the mount ([`Served::remember`]); this is about
//! the objects that differ from their class.
//!
//! [`Served::remember`]: crate::system::Served::remember

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use refit_change::{End, Report};
use refit_objects::{Clustering, Handover};
use refit_sys::printable;
use serde::{Deserialize, Serialize};

use crate::placement;
use crate::refusal::{Kind, Refusal};
use crate::system::{SwapRequest, System, WrapAct, WrapRequest};
use crate::wire::ObjectInfo;

/// The requester of these changes.
const OWNER: &str = "refit, which continues an instance";
/// The end of the name of an object whose file has no name any more.
const DELETED: &str = " (deleted)";

/// The changes of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The plugins, as [`System::load`] takes them.
    plugins: Vec<PathBuf>,
    objects: Vec<KeptObject>,
}

/// An object that differs from its class, or has wrappers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeptObject {
    name: String,
    /// The mount to which it belongs.
    mount: Option<String>,
    implementation: String,
    clustering: String,
    /// The wrappers with their settings, in the order in which they were attached.
    wrappers: Vec<(String, Vec<(String, String)>)>,
}

impl Kept {
    /// Returns the changes of an instance. `fresh` returns the implementation of new objects of an
    /// interface in a mount, if it is known.
    pub(crate) fn of(
        system: &dyn System,
        fresh: impl Fn(Option<&str>, &str) -> Option<String>,
    ) -> Self {
        let mut objects = system.objects();
        placement::assign(&mut objects);
        objects.retain(|object| {
            let fresh = fresh(object.mount.as_deref(), &object.interface);
            !object.wrappers.is_empty() || fresh.is_some_and(|it| it != object.implementation)
        });
        let plugins = system.plugins().into_iter().map(|plugin| plugin.path).collect();
        Self { plugins, objects: objects.into_iter().map(KeptObject::from).collect() }
    }

    /// Loads the plugins.
    pub(crate) fn load(&self, system: &dyn System) -> Result<(), Refusal> {
        self.plugins.iter().try_for_each(|plugin| system.load(plugin).map(drop))
    }

    /// Returns the paths of the files whose objects were changed, within a mount.
    pub(crate) fn files(&self, mount: &str) -> Vec<Vec<u8>> {
        let of_mount = self.objects.iter().filter(|object| object.mount.as_deref() == Some(mount));
        let path = |object: &KeptObject| {
            let (_, path) = object.name.split_once(':')?;
            path.starts_with('/').then(|| printable::bytes(path.trim_end_matches(DELETED)))
        };
        of_mount.filter_map(path).collect()
    }

    /// Makes the changes of the objects. Those of files that are not in use any more are omitted.
    pub(crate) fn restore(&self, system: &dyn System) -> Result<(), Refusal> {
        if self.objects.is_empty() {
            return Ok(());
        }
        let mut objects = system.objects();
        placement::assign(&mut objects);
        let key = |mount: &Option<String>, name: &str| (mount.clone(), name.to_owned());
        let found: HashMap<_, _> =
            objects.iter().map(|object| (key(&object.mount, &object.name), object)).collect();
        for kept in &self.objects {
            if let Some(object) = found.get(&key(&kept.mount, &kept.name)) {
                kept.restore(object, system)?;
            }
        }
        Ok(())
    }
}

impl From<ObjectInfo> for KeptObject {
    fn from(object: ObjectInfo) -> Self {
        let settings = |options: &str| {
            let settings = options.split_whitespace().filter_map(|one| one.split_once('='));
            settings.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        };
        let wrappers = object.wrappers.into_iter();
        let wrappers = wrappers.map(|wrapper| (wrapper.name, settings(&wrapper.options)));
        Self {
            name: object.name,
            mount: object.mount,
            implementation: object.implementation,
            clustering: object.clustering,
            wrappers: wrappers.collect(),
        }
    }
}

impl KeptObject {
    fn restore(&self, object: &ObjectInfo, system: &dyn System) -> Result<(), Refusal> {
        if self.implementation != object.implementation || self.clustering != object.clustering {
            let request = SwapRequest {
                objects: vec![(object.id, self.implementation.clone())],
                clustering: self.clustering.parse().unwrap_or(Clustering::AsMade),
                probation: None,
                retries: 0,
                change: 0,
                deadline: None,
                dry_run: false,
                protocol: None,
                handover: Handover::Transfer,
                cancel: Arc::new(AtomicBool::new(false)),
                owner: OWNER.to_owned(),
            };
            self.made(&system.swap(&request))?;
        }
        for (wrapper, settings) in &self.wrappers {
            let (wrapper, settings) = (wrapper.clone(), settings.clone());
            let act = WrapAct::Attach { wrapper, settings };
            system.can_wrap(object.id, &act).map_err(|obstacle| self.refused(obstacle))?;
            let (object, owner) = (object.id, OWNER.to_owned());
            self.made(&system.wrap(&WrapRequest { object, act, change: 0, owner }))?;
        }
        Ok(())
    }

    fn made(&self, report: &Report) -> Result<(), Refusal> {
        match &report.end {
            End::Committed => Ok(()),
            End::RolledBack(why) | End::Refused(why) => Err(self.refused(why.clone())),
            End::Rehearsed => Err(self.refused("it was only rehearsed".into())),
        }
    }

    fn refused(&self, obstacle: String) -> Refusal {
        let wrappers: String = self.wrappers.iter().map(|(name, _)| format!("{name} ")).collect();
        let operation = format!(
            "make {} {wrapper}{} again",
            self.name,
            self.implementation,
            wrapper = wrappers
        );
        let remedy = "use a refit that has this implementation, or swap the object first";
        Refusal::new(Kind::Failed, operation, obstacle, remedy)
    }
}
