//! The units of a plan: sites in place, copied functions, arrangements of copies, versions of
//! functions.

use std::ops::Range;
use std::sync::Arc;

use crate::arrange::Arranged;
use crate::body::{Body, Member, Part};
use crate::jump::{JUMP, Way};
use crate::layout::Layout;
use crate::record::Contents;
use crate::relocate::Displaced;
use crate::site::Site;
use crate::versions::ReadyVersions;

/// A unit of installation.
#[derive(Debug)]
pub(crate) enum Ready {
    Place(Place),
    Copied(Copied),
    Arranged(Arranged),
    Versions(Box<ReadyVersions>),
}

/// A site whose instructions make room for a jump.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) site: Site,
    pub(crate) displaced: Displaced,
    pub(crate) way: Way,
}

/// A function that is copied, with all its sites.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) body: Arc<Body>,
    pub(crate) members: Vec<Member>,
    pub(crate) layout: Layout,
    pub(crate) sites: Vec<Site>,
}

impl Ready {
    /// Returns the address of its site, or of the first one.
    pub(crate) fn first_site(&self) -> u64 {
        match self {
            Self::Place(place) => place.site.address,
            Self::Copied(copied) => {
                copied.sites.first().map_or(copied.body.entry, |site| site.address)
            }
            Self::Arranged(_) => self.reach().start,
            Self::Versions(versions) => versions.of.site.address,
        }
    }

    /// Returns its sites.
    pub(crate) fn sites(&self) -> &[Site] {
        match self {
            Self::Place(place) => std::slice::from_ref(&place.site),
            Self::Copied(copied) => &copied.sites,
            Self::Arranged(_) | Self::Versions(_) => &[],
        }
    }

    /// Returns the addresses of the bytes that it replaces or copies.
    pub(crate) fn replaced(&self) -> Vec<Range<u64>> {
        let Self::Place(Place { site, displaced, way }) = self else {
            return self.bodies().iter().flat_map(|body| &body.parts).map(Part::range).collect();
        };
        let length = displaced.length().max(way.length());
        let own = site.address..site.address + length as u64;
        let hop = match way {
            Way::Jump => None,
            Way::Hop(place) => Some(place.address..place.address + JUMP as u64),
        };
        std::iter::once(own).chain(hop).collect()
    }

    /// Whether unwinders learn of generated code by it.
    pub(crate) fn finds_frames(&self) -> bool {
        match self {
            Self::Place(place) => place.site.finds_frames(),
            Self::Copied(copied) => copied.sites.iter().any(Site::finds_frames),
            Self::Arranged(_) | Self::Versions(_) => false,
        }
    }

    /// Returns the functions of which code is copied.
    pub(crate) fn bodies(&self) -> Vec<&Body> {
        match self {
            Self::Place(_) => Vec::new(),
            Self::Copied(copied) => vec![&copied.body],
            Self::Arranged(arranged) => arranged.functions.iter().map(|one| &*one.body).collect(),
            Self::Versions(versions) => vec![&versions.of.body],
        }
    }

    /// Returns the kind of contents that it gives its area. The sites by which unwinders learn of
    /// copies are in the areas of those.
    pub(crate) fn contents(&self) -> Contents {
        match self {
            Self::Place(_) | Self::Copied(_) => Contents::Snippets,
            Self::Arranged(_) => Contents::Arrangement,
            Self::Versions(_) => Contents::Versions,
        }
    }

    /// Returns the range of addresses that the patch area has to be near.
    pub(crate) fn reach(&self) -> Range<u64> {
        match self {
            Self::Place(place) => place.site.address..place.site.address + JUMP as u64,
            Self::Copied(copied) => reach(&copied.body.parts, copied.body.entry),
            Self::Versions(versions) => reach(&versions.of.body.parts, versions.of.body.entry),
            Self::Arranged(_) => reach(self.bodies().into_iter().flat_map(|body| &body.parts), 0),
        }
    }
}

/// Returns the range of addresses around these parts; that at `none` if there are none.
fn reach<'p>(parts: impl IntoIterator<Item = &'p Part>, none: u64) -> Range<u64> {
    let ranges = parts.into_iter().map(Part::range);
    let around = |all: Range<u64>, one: Range<u64>| all.start.min(one.start)..all.end.max(one.end);
    ranges.reduce(around).unwrap_or(none..none)
}

impl Place {
    /// Whether unwinders learn of generated code there, and nothing else is done.
    pub(crate) fn finds_frames_only(&self) -> bool {
        self.site.finds_frames() && self.site.actions.len() == 1
    }

    pub(crate) fn line(&self) -> String {
        let way = match self.way {
            Way::Jump => "jump".to_owned(),
            Way::Hop(place) => format!("short jump, then a jump at {:#x}", place.address),
        };
        let (at, displaced) = (self.site.address, self.displaced.length());
        format!("{at:#x}: {way}; {displaced} bytes of instructions run in the patch area")
    }
}

impl Copied {
    pub(crate) fn line(&self) -> String {
        let (at, sites) = (self.body.entry, self.sites.len());
        let (size, gates) = (self.members.len(), self.layout.gates.len());
        format!(
            "{at:#x}: copy of the function ({size} instructions, {sites} of them with something to do), \
             {gates} places of it changed"
        )
    }
}
