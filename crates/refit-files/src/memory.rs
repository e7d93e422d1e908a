//! Stand-in until the memory crate is merged.

use parking_lot::Mutex;
pub(crate) use refit_memory_fcm::*;
use std::collections::BTreeMap;
use std::sync::Arc;

mod refit_memory_fcm {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum CacheError {
        NoFrame,
        Host(i32),
    }
    #[derive(Clone, Copy, Debug, Default)]
    pub(crate) struct CacheStats {
        pub(crate) dirty: u64,
    }
}

pub(crate) trait FileRepresentative: Send + Sync {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32>;
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32>;
    fn truncate(&self, size: u64) -> Result<(), i32>;
    fn size(&self) -> Result<u64, i32>;
    fn sync(&self, data_only: bool) -> Result<(), i32>;
}

impl<T: FileRepresentative> FileRepresentative for Arc<T> {
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, i32> {
        (**self).read(offset, buf)
    }
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), i32> {
        (**self).write(offset, data)
    }
    fn truncate(&self, size: u64) -> Result<(), i32> {
        (**self).truncate(size)
    }
    fn size(&self) -> Result<u64, i32> {
        (**self).size()
    }
    fn sync(&self, data_only: bool) -> Result<(), i32> {
        (**self).sync(data_only)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct FileRepresentativeRef(&'static dyn FileRepresentative);
impl FileRepresentativeRef {
    pub(crate) fn sync(&self, d: bool) -> Result<(), i32> {
        self.0.sync(d)
    }
    pub(crate) fn id(&self) -> u64 {
        0
    }
}
pub(crate) fn create_fr(
    _name: Name,
    fr: impl FileRepresentative + 'static,
) -> FileRepresentativeRef {
    FileRepresentativeRef(Box::leak(Box::new(fr)))
}
pub(crate) struct Name;
impl Name {
    pub(crate) fn lazy(_f: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Name
    }
}
#[derive(Clone, Copy)]
pub(crate) struct PhysicalMemoryRef;
impl PhysicalMemoryRef {
    pub(crate) fn reclaim(&self, _n: usize) -> usize {
        0
    }
}
struct Cache {
    fr: FileRepresentativeRef,
    state: Mutex<State>,
}
#[derive(Default)]
struct State {
    size: u64,
    size_dirty: bool,
    pages: BTreeMap<u64, (Box<[u8; 4096]>, bool)>,
}
#[derive(Clone, Copy)]
pub(crate) struct FileCacheRef(&'static Cache);
pub(crate) struct CacheParts {
    pub(crate) fr: FileRepresentativeRef,
}
pub(crate) fn create_file_cache(
    _n: Name,
    parts: CacheParts,
    _i: &str,
    size: u64,
) -> Result<FileCacheRef, ()> {
    Ok(FileCacheRef(Box::leak(Box::new(Cache {
        fr: parts.fr,
        state: Mutex::new(State { size, ..State::default() }),
    }))))
}
pub(crate) fn destroy(_id: u64) {}
pub(crate) fn request<R>(f: impl FnOnce() -> R) -> R {
    f()
}

impl Cache {
    fn page<'a>(
        &self,
        s: &'a mut State,
        page: u64,
    ) -> Result<&'a mut (Box<[u8; 4096]>, bool), CacheError> {
        if !s.pages.contains_key(&page) {
            let mut data = Box::new([0u8; 4096]);
            self.fr.0.read(page * 4096, &mut data[..]).map_err(CacheError::Host)?;
            s.pages.insert(page, (data, false));
        }
        Ok(s.pages.get_mut(&page).unwrap())
    }
}
impl FileCacheRef {
    pub(crate) fn id(&self) -> u64 {
        0
    }
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize, CacheError> {
        let s = &mut *self.0.state.lock();
        if offset >= s.size {
            return Ok(0);
        }
        let n = buf.len().min((s.size - offset) as usize);
        let mut done = 0;
        while done < n {
            let at = offset + done as u64;
            let (page, off) = (at / 4096, (at % 4096) as usize);
            let len = (4096 - off).min(n - done);
            let p = self.0.page(s, page)?;
            buf[done..done + len].copy_from_slice(&p.0[off..off + len]);
            done += len;
        }
        Ok(n)
    }
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<usize, CacheError> {
        let s = &mut *self.0.state.lock();
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (page, off) = (at / 4096, (at % 4096) as usize);
            let len = (4096 - off).min(data.len() - done);
            let p = self.0.page(s, page)?;
            p.0[off..off + len].copy_from_slice(&data[done..done + len]);
            p.1 = true;
            done += len;
        }
        if offset + data.len() as u64 > s.size {
            s.size = offset + data.len() as u64;
            s.size_dirty = true;
        }
        Ok(data.len())
    }
    pub(crate) fn truncate(&self, size: u64) -> Result<(), CacheError> {
        let s = &mut *self.0.state.lock();
        self.0.fr.0.truncate(size).map_err(CacheError::Host)?;
        s.size = size;
        s.size_dirty = false;
        let end = size.div_ceil(4096);
        s.pages.split_off(&end);
        if size % 4096 != 0
            && let Some(p) = s.pages.get_mut(&(size / 4096))
        {
            p.0[(size % 4096) as usize..].fill(0);
        }
        Ok(())
    }
    pub(crate) fn size(&self) -> u64 {
        self.0.state.lock().size
    }
    pub(crate) fn is_dirty(&self) -> bool {
        let s = self.0.state.lock();
        s.size_dirty || s.pages.values().any(|p| p.1)
    }
    pub(crate) fn flush(&self, start: u64, end: u64) -> Result<u64, CacheError> {
        let s = &mut *self.0.state.lock();
        let mut n = 0;
        let size = s.size;
        for (page, p) in s.pages.range_mut(start / 4096..end.div_ceil(4096)) {
            if p.1 {
                let at = page * 4096;
                let len = 4096.min(size.saturating_sub(at)) as usize;
                self.0.fr.0.write(at, &p.0[..len]).map_err(CacheError::Host)?;
                p.1 = false;
                n += 1;
            }
        }
        if end >= size {
            s.size_dirty = false;
        }
        Ok(n)
    }
    pub(crate) fn invalidate(&self, start: u64, end: u64) -> Result<(), CacheError> {
        self.flush(start, end)?;
        let s = &mut *self.0.state.lock();
        s.pages.retain(|p, _| *p < start / 4096 || *p >= end.div_ceil(4096));
        s.size = self.0.fr.0.size().map_err(CacheError::Host)?;
        Ok(())
    }
    pub(crate) fn discard(&self) {
        let s = &mut *self.0.state.lock();
        s.pages.clear();
        s.size_dirty = false;
    }
    pub(crate) fn stats(&self) -> CacheStats {
        let s = self.0.state.lock();
        CacheStats { dirty: s.pages.values().filter(|p| p.1).count() as u64 }
    }
}
#[derive(Clone)]
pub(crate) struct FramePool;
pub(crate) fn make_memory(_bytes: u64) -> (PhysicalMemoryRef, Arc<FramePool>) {
    (PhysicalMemoryRef, Arc::new(FramePool))
}
