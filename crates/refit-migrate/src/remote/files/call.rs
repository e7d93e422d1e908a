//! The calls on files, and the effects of each.

use std::ops::Range;

use rustix::fs::SeekFrom;

/// A call on an open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileCall {
    /// The descriptor.
    pub(crate) file: u32,
    pub(crate) operation: Operation,
    /// The memory that it reads from or writes to.
    pub(crate) memory: Memory,
}

/// The operation of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// At this offset, or at the file's position, which moves.
    Read(Option<u64>),
    Write(Option<u64>),
    Seek(SeekFrom),
    /// `fstat`; with the address of a path, if it must be empty.
    Status(Option<u64>),
}

/// The memory of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    None,
    One(Range<u64>),
    /// At this address are this many places (`struct iovec`).
    Listed(u64, usize),
}

/// Calls that may give a descriptor to another file.
pub(crate) const OPENS: [i64; 8] = [
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_creat,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_dup3,
    libc::SYS_fcntl,
];

/// Frequent calls that leave a thread's rights as they are. Any other one may change them.
pub(crate) const LEAVES_RIGHTS: [i64; 40] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_stat,
    libc::SYS_statx,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup2,
    libc::SYS_fcntl,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
];

/// Bytes of a `struct stat`.
pub(crate) const STAT_SIZE: usize = 144;
/// Bytes of a `struct iovec`.
const IOVEC: usize = 16;
/// The largest number of places; the shadow makes calls with more.
const MAX_PLACES: usize = 16;

impl FileCall {
    /// Returns what a call does, or `None` if it is no such call, or is refused.
    pub(crate) fn of(number: u64, arguments: &[u64; 6]) -> Option<Self> {
        // Truncated as the kernel does.
        let file = arguments[0] as u32;
        let at = |at: u64| (at.cast_signed() >= 0).then_some(Some(at));
        let one = || Some(Memory::One(arguments[1]..arguments[1].checked_add(arguments[2])?));
        let listed = || {
            let count = usize::try_from(arguments[2]).ok().filter(|count| *count <= MAX_PLACES)?;
            Some(Memory::Listed(arguments[1], count))
        };
        let status = |to: u64| Some(Memory::One(to..to.checked_add(STAT_SIZE as u64)?));
        let (operation, memory) = match number.cast_signed() {
            libc::SYS_read => (Operation::Read(None), one()?),
            libc::SYS_pread64 => (Operation::Read(at(arguments[3])?), one()?),
            libc::SYS_readv => (Operation::Read(None), listed()?),
            libc::SYS_preadv => (Operation::Read(at(arguments[3])?), listed()?),
            libc::SYS_write => (Operation::Write(None), one()?),
            libc::SYS_pwrite64 => (Operation::Write(at(arguments[3])?), one()?),
            libc::SYS_writev => (Operation::Write(None), listed()?),
            libc::SYS_pwritev => (Operation::Write(at(arguments[3])?), listed()?),
            libc::SYS_lseek => (Operation::Seek(seek(arguments[1], arguments[2])?), Memory::None),
            libc::SYS_fstat => (Operation::Status(None), status(arguments[1])?),
            libc::SYS_newfstatat if arguments[3] as u32 == libc::AT_EMPTY_PATH.cast_unsigned() => {
                (Operation::Status(Some(arguments[1])), status(arguments[2])?)
            }
            _ => return None,
        };
        Some(Self { file, operation, memory })
    }
}

fn seek(offset: u64, whence: u64) -> Option<SeekFrom> {
    let by = offset.cast_signed();
    Some(match (whence as u32).cast_signed() {
        libc::SEEK_SET if by >= 0 => SeekFrom::Start(offset),
        libc::SEEK_CUR => SeekFrom::Current(by),
        libc::SEEK_END => SeekFrom::End(by),
        libc::SEEK_DATA if by >= 0 => SeekFrom::Data(offset),
        libc::SEEK_HOLE if by >= 0 => SeekFrom::Hole(offset),
        _ => return None,
    })
}

impl Memory {
    /// Returns the places, in order; `listed` fetches the list of them. Returns `None` if the list
    /// cannot be fetched, or has places that no program can have.
    pub(crate) fn places(
        &self,
        listed: impl FnOnce(Range<u64>, &mut [u8]) -> bool,
    ) -> Option<Vec<Range<u64>>> {
        match self {
            Self::None => Some(Vec::new()),
            Self::One(place) => Some(vec![place.clone()]),
            Self::Listed(at, count) => {
                let mut bytes = [0; MAX_PLACES * IOVEC];
                let bytes = &mut bytes[..count * IOVEC];
                let end = at.checked_add(bytes.len() as u64)?;
                if !listed(*at..end, bytes) {
                    return None;
                }
                let word = |bytes: &[u8]| Some(u64::from_ne_bytes(bytes.try_into().ok()?));
                let place = |bytes: &[u8]| {
                    let (start, length) = (word(&bytes[..8])?, word(&bytes[8..])?);
                    Some(start..start.checked_add(length)?)
                };
                bytes.chunks_exact(IOVEC).map(place).collect()
            }
        }
    }
}

/// Returns the places of the first `bytes` bytes.
pub(crate) fn first(places: &[Range<u64>], bytes: u64) -> Vec<Range<u64>> {
    let mut left = bytes;
    let cut = |place: &Range<u64>| {
        let length = (place.end - place.start).min(left);
        left -= length;
        place.start..place.start + length
    };
    places.iter().map(cut).filter(|place| !place.is_empty()).collect()
}

/// Returns the status of a file, as the kernel lays it out on this processor (`struct stat`,
/// `asm/stat.h`).
pub(crate) fn image(status: &rustix::fs::Stat) -> [u8; STAT_SIZE] {
    let half = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let words = [
        status.st_dev,
        status.st_ino,
        status.st_nlink,
        half(status.st_mode, status.st_uid),
        half(status.st_gid, 0),
        status.st_rdev,
        status.st_size.cast_unsigned(),
        status.st_blksize.cast_unsigned(),
        status.st_blocks.cast_unsigned(),
        status.st_atime as u64,
        status.st_atime_nsec,
        status.st_mtime as u64,
        status.st_mtime_nsec,
        status.st_ctime as u64,
        status.st_ctime_nsec,
    ];
    let mut image = [0; STAT_SIZE];
    for (into, word) in image.chunks_exact_mut(8).zip(words) {
        into.copy_from_slice(&word.to_ne_bytes());
    }
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: i64, arguments: [u64; 6]) -> Option<FileCall> {
        FileCall::of(number.cast_unsigned(), &arguments)
    }

    #[test]
    fn calls_on_files_are_distinguished_from_others() {
        let read = of(libc::SYS_read, [1 << 32 | 3, 0x1000, 8, 9, 9, 9]).expect("a read");
        assert_eq!((read.file, read.operation), (3, Operation::Read(None)));
        assert_eq!(read.memory, Memory::One(0x1000..0x1008));
        let pread = of(libc::SYS_pread64, [3, 0x1000, 8, 77, 0, 0]).expect("a read");
        assert_eq!(pread.operation, Operation::Read(Some(77)));
        assert_eq!(of(libc::SYS_pread64, [3, 0x1000, 8, u64::MAX, 0, 0]), None);
        assert_eq!(of(libc::SYS_read, [3, u64::MAX, 8, 0, 0, 0]), None);
        let seek =
            |by, whence| of(libc::SYS_lseek, [3, by, whence, 0, 0, 0]).map(|call| call.operation);
        assert_eq!(seek(u64::MAX, 1), Some(Operation::Seek(SeekFrom::Current(-1))));
        assert_eq!((seek(u64::MAX, 0), seek(0, 7)), (None, None));
        assert_eq!(of(libc::SYS_ioctl, [3, 0, 0, 0, 0, 0]), None);
        let empty = libc::AT_EMPTY_PATH as u64;
        let named = of(libc::SYS_newfstatat, [3, 0x10, 0x2000, empty, 0, 0]).expect("a status");
        assert_eq!(named.operation, Operation::Status(Some(0x10)));
        assert_eq!(of(libc::SYS_newfstatat, [3, 0x10, 0x2000, 0, 0, 0]), None);
    }

    #[test]
    fn places_are_read_where_they_are_listed() {
        let memory = of(libc::SYS_writev, [3, 0x1000, 2, 0, 0, 0]).expect("a write").memory;
        let list = [0x5000_u64, 3, 0x7000, 5].map(u64::to_ne_bytes).concat();
        let places = memory.places(|at, into| {
            into.copy_from_slice(&list);
            at == (0x1000..0x1020)
        });
        let places = places.expect("they are read");
        assert_eq!(places, [0x5000..0x5003, 0x7000..0x7005]);
        assert_eq!(first(&places, 4), [0x5000..0x5003, 0x7000..0x7001]);
        assert_eq!(first(&places, 3), places[..1]);
        assert_eq!(memory.places(|_, _| false), None);
        let over = |_: Range<u64>, into: &mut [u8]| {
            into.fill(0xff);
            true
        };
        assert_eq!(memory.places(over), None);
        assert_eq!(of(libc::SYS_readv, [3, 0x1000, 17, 0, 0, 0]), None);
    }

    #[test]
    fn a_status_is_laid_out_as_by_the_kernel() {
        let file = std::fs::File::open("/proc/self/exe").expect("this program");
        let status = rustix::fs::fstat(&file).expect("a file");
        let image = image(&status);
        let word = |at: usize| u64::from_ne_bytes(image[at..at + 8].try_into().expect("8 bytes"));
        let offset = |field: usize| word(field);
        assert_eq!(offset(std::mem::offset_of!(libc::stat, st_ino)), status.st_ino);
        assert_eq!(offset(std::mem::offset_of!(libc::stat, st_size)), status.st_size as u64);
        assert_eq!(offset(std::mem::offset_of!(libc::stat, st_ctime_nsec)), status.st_ctime_nsec);
        let mode = std::mem::offset_of!(libc::stat, st_mode);
        assert_eq!(image[mode..mode + 4], status.st_mode.to_ne_bytes());
        assert_eq!(size_of::<libc::stat>(), STAT_SIZE);
    }
}
