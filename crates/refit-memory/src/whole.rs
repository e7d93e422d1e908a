//! Operations on a file as a whole, with all of its partitions locked at once, in ascending order.
//!
//! The ascending order, and waiting for a flight with no lock held, keep two such calls from
//! waiting for each other. A cache with one lock is a file of one partition.

use std::ops::RangeInclusive;
use std::sync::Arc;

use refit_objects::TransferError;

use crate::cell::{Cell, Guard};
use crate::fcm::{CacheError, CacheState, CacheStats, CacheStripes, MAX_SIZE, PAGE_SIZE};
use crate::index::{CachedPage, Layer, deal, stripe_of};
use crate::lazy::{LazyIndex, TransferProgress};
use crate::pages::{File, Flight, Pages, pages_of};

const ALL: RangeInclusive<u64> = 0..=u64::MAX;

/// Locks all partitions at a moment when none of `pages` is in flight.
fn lock_idle<'a, C: AsRef<Cell>>(cells: &'a [C], pages: &RangeInclusive<u64>) -> Vec<Guard<'a>> {
    loop {
        let mut guards: Vec<_> = cells.iter().map(|cell| cell.as_ref().lock()).collect();
        let Some(index) = guards.iter().position(|guard| guard.in_flight(pages)) else {
            return guards;
        };
        let guard = guards.swap_remove(index);
        drop(guards);
        drop(cells[index].as_ref().wait(guard));
    }
}

/// Implements [`FileCache::truncate`](crate::FileCache::truncate).
///
/// The locks are held during the call of the host, so that no fill and no write-back of truncated
/// pages runs while only one of the cache and the host's file is truncated.
pub(crate) fn truncate<C: AsRef<Cell>>(
    file: &File,
    cells: &[C],
    size: u64,
) -> Result<(), CacheError> {
    if size > MAX_SIZE {
        return Err(CacheError::Host(libc::EFBIG));
    }
    let mut guards = lock_idle(cells, &(size / PAGE_SIZE as u64..=u64::MAX));
    file.parts.fr.truncate(size).map_err(CacheError::Host)?;
    for pages in &mut guards {
        pages.cut(file, size);
    }
    file.set_size(size);
    Ok(())
}

/// Implements [`FileCache::flush`](crate::FileCache::flush).
pub(crate) fn flush<C: AsRef<Cell>>(
    file: &File,
    cells: &[C],
    start: u64,
    end: u64,
) -> Result<u64, CacheError> {
    let Some(range) = pages_of(start, end) else { return Ok(0) };
    cells.iter().map(|cell| cell.as_ref().flush(file, &range)).sum()
}

/// Implements [`FileCache::invalidate`](crate::FileCache::invalidate).
pub(crate) fn invalidate<C: AsRef<Cell>>(
    file: &File,
    cells: &[C],
    start: u64,
    end: u64,
) -> Result<(), CacheError> {
    loop {
        let stale = stale(file, start, end);
        for cell in cells {
            for range in &stale {
                cell.as_ref().flush(file, range)?;
            }
        }
        let mut guards = lock_idle(cells, &ALL);
        let dirty = |range| guards.iter().any(|pages| pages.has_dirty(range));
        if stale.iter().any(dirty) || stale != self::stale(file, start, end) {
            continue;
        }
        let mut size = file.parts.fr.size().map_err(CacheError::Host)?;
        for pages in &mut guards {
            stale.iter().for_each(|range| pages.forget(file, range));
            // Dirty pages elsewhere still belong to the file, whatever size the host reports.
            size = size.max(pages.dirty_end(file));
        }
        for pages in &mut guards {
            pages.cut(file, size);
        }
        file.set_size(size);
        return Ok(());
    }
}

/// Implements [`FileCache::forget`](crate::FileCache::forget).
pub(crate) fn forget<C: AsRef<Cell>>(
    file: &File,
    cells: &[C],
    start: u64,
    end: u64,
) -> Result<(), CacheError> {
    let Some(range) = pages_of(start, end) else { return Ok(()) };
    let mut guards = lock_idle(cells, &ALL);
    let mut size = file.parts.fr.size().map_err(CacheError::Host)?;
    for pages in &mut guards {
        pages.forget(file, &range);
        size = size.max(pages.dirty_end(file));
    }
    for pages in &mut guards {
        pages.cut(file, size);
    }
    file.set_size(size);
    Ok(())
}

/// Returns the pages that `[start, end)` overlaps, and the page with the end of the file: its tail
/// is zero here, but not on the host if others have extended the file.
fn stale(file: &File, start: u64, end: u64) -> Vec<RangeInclusive<u64>> {
    let size = file.size();
    let tail = (!size.is_multiple_of(PAGE_SIZE as u64)).then(|| size / PAGE_SIZE as u64);
    pages_of(start, end).into_iter().chain(tail.map(|page| page..=page)).collect()
}

/// Implements [`FileCache::discard`](crate::FileCache::discard).
pub(crate) fn discard<C: AsRef<Cell>>(file: &File, cells: &[C]) {
    for pages in &mut lock_idle(cells, &ALL) {
        pages.forget(file, &ALL);
    }
}

/// Implements [`FileCache::is_dirty`](crate::FileCache::is_dirty).
pub(crate) fn is_dirty<C: AsRef<Cell>>(cells: &[C]) -> bool {
    cells.iter().any(|cell| cell.as_ref().lock().is_dirty())
}

/// Implements [`FileCache::stats`](crate::FileCache::stats).
pub(crate) fn stats<C: AsRef<Cell>>(file: &File, cells: &[C]) -> CacheStats {
    let mut stats = CacheStats { size: file.size(), ..CacheStats::default() };
    for cell in cells {
        let pages = cell.as_ref().lock();
        stats.resident += pages.index.len() as u64;
        stats.dirty += pages.dirty_pages(file);
        stats.calls += pages.calls;
        stats.faults += pages.faults;
    }
    stats
}

/// Visits each partition for an export, one after the other. No call is in progress, so nothing
/// changes in the meantime.
fn visit<C: AsRef<Cell>>(cells: &[C], mut see: impl FnMut(&Pages)) -> Result<(), TransferError> {
    for cell in cells {
        let pages = cell.as_ref().lock();
        if let Some(Flight { first, last, .. }) = pages.flights.first() {
            let what = format!("pages {first} to {last} are in use by a call in progress");
            return Err(TransferError(what));
        }
        see(&pages);
    }
    Ok(())
}

/// Returns the canonical state; the cache stays as it is.
pub(crate) fn export<C: AsRef<Cell>>(
    file: &File,
    cells: &[C],
) -> Result<CacheState, TransferError> {
    let mut state = CacheState { size: file.size(), ..CacheState::default() };
    visit(cells, |pages| {
        state.calls += pages.calls;
        state.faults += pages.faults;
        state.pages.reserve(pages.index.len());
        state.pages.extend(pages.index.pages(file.pool()));
    })?;
    Ok(state)
}

/// Returns the state by reference; the cache stays as it is.
pub(crate) fn share<C: AsRef<Cell>>(
    file: &File,
    cells: &[C],
) -> Result<CacheStripes, TransferError> {
    let mut state = CacheStripes { size: file.size(), ..CacheStripes::default() };
    let mut of_cells = Vec::with_capacity(cells.len());
    visit(cells, |pages| {
        state.calls += pages.calls;
        state.faults += pages.faults;
        of_cells.push(pages.index.share());
    })?;
    let layers = of_cells.iter().map(Vec::len).max().unwrap_or(0);
    // A cell that has taken over all of its pages has no layers beneath any more, and contributes
    // an empty stripe.
    let stripes = |of_cell: &Vec<Layer>, layer: usize| -> Layer {
        of_cell.get(layer).cloned().unwrap_or_else(|| vec![Arc::default()])
    };
    let whole = |layer| of_cells.iter().flat_map(|of_cell| stripes(of_cell, layer)).collect();
    state.layers = (0..layers).map(whole).collect();
    Ok(state)
}

/// Locks an empty cache that takes over `size`, `calls` and `faults`.
fn lock_empty<'a, C: AsRef<Cell>>(
    file: &File,
    cells: &'a [C],
    (size, calls, faults): (u64, u64, u64),
) -> Result<Vec<Guard<'a>>, TransferError> {
    let mut guards: Vec<_> = cells.iter().map(|cell| cell.as_ref().lock()).collect();
    if guards.iter().any(|pages| pages.index.len() > 0) {
        return Err(TransferError("the new cache has pages already".to_owned()));
    }
    file.set_size(size);
    (guards[0].calls, guards[0].faults) = (calls, faults);
    Ok(guards)
}

/// Imports the canonical state into an empty cache: each page into the index of its partition.
pub(crate) fn import<C: AsRef<Cell>>(
    file: &File,
    cells: &[C],
    state: CacheState,
) -> Result<(), TransferError> {
    let CacheState { size, pages, calls, faults } = state;
    let mut guards = lock_empty(file, cells, (size, calls, faults))?;
    let share = pages.len() / cells.len();
    guards.iter_mut().for_each(|guard| guard.index.reserve(file.pool(), share));
    let put =
        |cached: CachedPage| put(file, &mut guards[stripe_of(cached.page, cells.len())], cached);
    pages.into_iter().try_for_each(put)
}

/// Returns one of `parts` parts of the canonical state, divided as stripes are; the first one has
/// the counters. Several threads may export parts at the same time.
pub(crate) fn export_part<C: AsRef<Cell>>(
    file: &File,
    cells: &[C],
    part: usize,
    parts: usize,
) -> Result<CacheState, TransferError> {
    let mut state = CacheState { size: file.size(), ..CacheState::default() };
    if part == 0 {
        visit(cells, |pages| {
            state.calls += pages.calls;
            state.faults += pages.faults;
        })?;
    }
    // A lock for each part, or one for all.
    let (cell, of) = if cells.len() == parts { (part, 1) } else { (0, parts) };
    let within = if of == 1 { 0 } else { part };
    visit(&cells[cell..=cell], |pages| state.pages = pages.index.part(file.pool(), within, of))?;
    Ok(state)
}

/// Imports one of `parts` parts of the canonical state into a cache that does not have it yet.
pub(crate) fn import_part<C: AsRef<Cell>>(
    file: &File,
    cells: &[C],
    (part, parts): (usize, usize),
    state: CacheState,
) -> Result<(), TransferError> {
    let CacheState { size, pages, calls, faults } = state;
    let mut guard = cells[part % cells.len()].as_ref().lock();
    if guard.index.len() == 0 {
        // The parts are of roughly equal size. Pages that come in the order of another table would
        // cluster in one that grows with them.
        guard.index.reserve(file.pool(), pages.len() * (parts / cells.len()));
    }
    if part == 0 {
        file.set_size(size);
        (guard.calls, guard.faults) = (calls, faults);
    }
    pages.into_iter().try_for_each(|cached| put(file, &mut guard, cached))
}

/// Puts a page into the index of its partition.
fn put(file: &File, pages: &mut Pages, cached: CachedPage) -> Result<(), TransferError> {
    let CachedPage { page, frame, dirty } = cached;
    if file.pool().page(frame) != page {
        let what = format!("page {page} is not in the frame that the state names");
        return Err(TransferError(what));
    }
    pages.index.insert(file.pool(), frame);
    if dirty {
        pages.index.mark_dirty(page);
    }
    Ok(())
}

/// Takes stripes over into an empty cache: all under the only lock, or one under each.
pub(crate) fn adopt<C: AsRef<Cell>>(
    file: &File,
    cells: &[C],
    state: CacheStripes,
    adopt: fn(&mut LazyIndex, Layer),
) -> Result<(), TransferError> {
    let CacheStripes { size, layers, calls, faults } = state;
    let mut guards = lock_empty(file, cells, (size, calls, faults))?;
    for stripes in layers {
        match &mut guards[..] {
            [only] => adopt(&mut only.index, stripes),
            several => {
                let dealt = deal(&stripes, file.pool(), several.len());
                for (pages, stripe) in several.iter_mut().zip(dealt) {
                    adopt(&mut pages.index, vec![stripe]);
                }
            }
        }
    }
    Ok(())
}

/// Moves up to `most` pages of a lazy transfer that no call has needed yet. A partition's lock is
/// held for its share of them.
pub(crate) fn drain<C: AsRef<Cell>>(file: &File, cells: &[C], most: usize) -> TransferProgress {
    let mut sum = TransferProgress::default();
    let mut room = most;
    for cell in cells {
        let mut pages = cell.as_ref().lock();
        room -= pages.index.drain(file.pool(), room);
        let TransferProgress { left, on_demand, by_drain } = pages.index.moved();
        sum.left += left;
        sum.on_demand += on_demand;
        sum.by_drain += by_drain;
    }
    sum
}

/// Returns the number of cached pages.
pub(crate) fn resident<C: AsRef<Cell>>(cells: &[C]) -> u64 {
    cells.iter().map(|cell| cell.as_ref().lock().index.len() as u64).sum()
}

/// Drops all pages without freeing their frames, since another cache has them.
pub(crate) fn relinquish<C: AsRef<Cell>>(cells: &[C]) {
    cells.iter().for_each(|cell| cell.as_ref().lock().index.clear());
}
