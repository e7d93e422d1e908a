//! Checks whether an implementation that was built against one version of an interface can serve a
//! host that has another.
//!
//! Methods are only ever appended. So the shorter list must be the beginning of the longer one.
//! Methods that only the plugin has are never called. Methods that only the host has must have a
//! body in the trait. That body runs in their place, and calls methods that the plugin has.

use super::error::Obstacle;
use super::note::{Description, ManifestEntry};
use crate::registry;

/// Checks an entry of a note against the interface of the host.
pub(crate) fn compare(entry: &ManifestEntry, host: &Description) -> Result<(), Obstacle> {
    let interface = host.interface;
    if entry.state != host.state {
        let (has, wants) = (entry.state.clone(), host.state);
        return Err(Obstacle::State { interface, has, wants });
    }
    for (index, method) in host.methods.iter().enumerate() {
        let (has_version, wants_version) = (entry.version, host.version);
        match entry.methods.get(index) {
            Some((name, hash, _)) if name == method.name && *hash == method.hash => {}
            Some((name, _, signature)) => {
                return Err(Obstacle::Method {
                    interface,
                    index,
                    method: method.name,
                    has: if name == method.name {
                        signature.as_str().into()
                    } else {
                        format!("{name}: {signature}").into()
                    },
                    has_version,
                    wants: method.signature,
                    wants_version,
                    users: users(host.interface),
                });
            }
            None if method.defaulted => {}
            None => {
                return Err(Obstacle::Missing {
                    interface,
                    method: method.name,
                    wants: method.signature,
                    has_version,
                    wants_version,
                    users: users(host.interface),
                });
            }
        }
    }
    Ok(())
}

/// Returns some of the objects whose references have the methods of an interface.
fn users(interface: &str) -> Vec<String> {
    const SHOWN: usize = 4;
    let mut users: Vec<_> = registry::all();
    users.retain(|slot| slot.interface.name == interface);
    users.sort_by_key(|slot| slot.id);
    users.iter().take(SHOWN).map(|slot| slot.full_name()).collect()
}
