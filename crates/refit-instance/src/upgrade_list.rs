//! The upgrades in progress, which any client can pause.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use refit_objects::UpgradeControl;

use crate::refusal::{Kind, Refusal};

/// The upgrades in progress, by class.
#[derive(Debug, Default)]
pub(crate) struct UpgradeList(Mutex<BTreeMap<String, Arc<UpgradeControl>>>);

impl UpgradeList {
    /// Locks the list.
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<UpgradeControl>>> {
        self.0.lock()
    }

    /// Pauses or resumes an upgrade.
    ///
    /// # Errors
    ///
    /// No upgrade of this class is in progress.
    pub(crate) fn pause(&self, class: &str, paused: bool) -> Result<(), Refusal> {
        let under_way = self.lock();
        let control = under_way.get(class).ok_or_else(|| {
            let what = if paused { "pause" } else { "resume" };
            let remedy = "see completed upgrades in `refit changes`";
            Refusal::new(
                Kind::Unknown,
                format!("{what} the upgrade of {class}"),
                "no upgrade of the class is under way",
                remedy,
            )
        })?;
        control.pause(paused);
        Ok(())
    }
}
