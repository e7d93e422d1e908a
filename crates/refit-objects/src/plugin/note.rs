//! The note: what a plugin says of itself in its file, so that it can be checked before any of its code runs.
//!
//! An ELF note (section `.note.refit`, owner `refit`, type 1), written by the compiler from constants. Its content, all
//! numbers little-endian, a text being a `u16` length and UTF-8 bytes:
//!
//! ```text
//! magic u64 │ format u32 │ length u32 │ flags u32 │ target │ rustc │ package │ implementations u16
//!   each: interface │ version u32 │ state │ implementation │ methods u16
//!     each: name │ hash u64 │ signature
//! ```

use super::foreign::{FORMAT, TABLE_MAGIC};

/// Owner of the note, as it stands in the file.
pub(crate) const OWNER: &[u8] = b"refit";
/// Its type.
pub(crate) const KIND: u32 = 1;
/// The flag of a plugin whose panics unwind.
pub const UNWINDS: u32 = 1;

/// The target that this crate was compiled for.
pub(crate) const TARGET: &str = env!("REFIT_TARGET");
/// The compiler that compiled this crate.
pub(crate) const RUSTC: &str = env!("REFIT_RUSTC");

/// A loadable interface, as it stands in notes.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Name of the interface.
    pub interface: &'static str,
    /// Its version.
    pub version: u32,
    /// Its canonical state.
    pub state: &'static str,
    /// Its methods, in order.
    pub methods: &'static [MethodDescription],
}

/// A method of it.
#[derive(Clone, Copy, Debug)]
pub struct MethodDescription {
    /// Its name.
    pub name: &'static str,
    /// Its types, for people.
    pub signature: &'static str,
    /// Hash of its types, and of what they are taken apart into.
    pub hash: u64,
    /// It has a body in the trait, for implementations that do not know it.
    pub defaulted: bool,
}

/// An implementation that a plugin exports.
#[derive(Clone, Copy, Debug)]
pub struct Exported {
    /// What it implements.
    pub interface: Description,
    /// Its name.
    pub name: &'static str,
}

/// The note as it lies in the file and in memory; `N` bytes of content, a multiple of 4.
#[repr(C, align(4))]
#[derive(Debug)]
pub struct Note<const N: usize> {
    owner_len: u32,
    content_len: u32,
    kind: u32,
    owner: [u8; 8],
    content: [u8; N],
}

/// Bytes of the content of a note.
pub const fn length(exported: &[Exported], package: &str) -> usize {
    write::<0>(exported, package, 0, 0).1.next_multiple_of(4)
}

impl<const N: usize> Note<N> {
    /// The note of these implementations; `N` must be [`length`] of the same.
    pub const fn new(exported: &[Exported], package: &str, flags: u32) -> Self {
        let (content, length) = write::<N>(exported, package, flags, N as u32);
        assert!(length.next_multiple_of(4) == N, "N is what `length` says");
        let owner = *b"refit\0\0\0";
        Note { owner_len: 6, content_len: N as u32, kind: KIND, owner, content }
    }

    /// Where the content is.
    pub const fn content(&'static self) -> *const u8 {
        self.content.as_ptr()
    }
}

/// Writes what fits, and tells how long it would be.
struct Pen<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Pen<N> {
    const fn bytes(&mut self, bytes: &[u8]) {
        let mut i = 0;
        while i < bytes.len() {
            if self.at < N {
                self.bytes[self.at] = bytes[i];
            }
            self.at += 1;
            i += 1;
        }
    }
    const fn text(&mut self, text: &str) {
        assert!(text.len() <= u16::MAX as usize, "a text of a note has a length of 16 bits");
        self.bytes(&(text.len() as u16).to_le_bytes());
        self.bytes(text.as_bytes());
    }
}

const fn write<const N: usize>(
    exported: &[Exported],
    package: &str,
    flags: u32,
    length: u32,
) -> ([u8; N], usize) {
    let mut pen = Pen { bytes: [0; N], at: 0 };
    pen.bytes(&TABLE_MAGIC.to_le_bytes());
    pen.bytes(&FORMAT.to_le_bytes());
    pen.bytes(&length.to_le_bytes());
    pen.bytes(&flags.to_le_bytes());
    pen.text(TARGET);
    pen.text(RUSTC);
    pen.text(package);
    pen.bytes(&(exported.len() as u16).to_le_bytes());
    let mut i = 0;
    while i < exported.len() {
        let Exported { interface, name } = exported[i];
        pen.text(interface.interface);
        pen.bytes(&interface.version.to_le_bytes());
        pen.text(interface.state);
        pen.text(name);
        pen.bytes(&(interface.methods.len() as u16).to_le_bytes());
        let mut m = 0;
        while m < interface.methods.len() {
            pen.text(interface.methods[m].name);
            pen.bytes(&interface.methods[m].hash.to_le_bytes());
            pen.text(interface.methods[m].signature);
            m += 1;
        }
        i += 1;
    }
    (pen.bytes, pen.at)
}

/// A note that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The plugin's panics unwind.
    pub unwinds: bool,
    /// What it was compiled for.
    pub target: String,
    /// What compiled it; for information.
    pub rustc: String,
    /// Name and version of its package.
    pub package: String,
    /// What it exports.
    pub implementations: Vec<ManifestEntry>,
}

/// An implementation of a note that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    /// Name of its interface.
    pub interface: String,
    /// The version that it was built against.
    pub version: u32,
    /// The canonical state.
    pub state: String,
    /// Name of the implementation.
    pub name: String,
    /// The methods that it knows, in order: name, hash, signature.
    pub methods: Vec<(String, u64, String)>,
}

/// What is wrong with a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Format(u32),
    Malformed(String),
}

/// Reads the content of a note; believes nothing.
pub(crate) fn read(content: &[u8]) -> Result<Manifest, Unreadable> {
    let mut eye = Eye { bytes: content };
    if eye.u64("magic")? != TABLE_MAGIC {
        return Err(Unreadable::Malformed("its magic number is another one".into()));
    }
    let format = eye.u32("format")?;
    if format != FORMAT {
        return Err(Unreadable::Format(format));
    }
    let length = eye.u32("length")? as usize;
    if length != content.len() {
        let what = format!("it says {length} bytes, and has {}", content.len());
        return Err(Unreadable::Malformed(what));
    }
    let unwinds = eye.u32("flags")? & UNWINDS != 0;
    let (target, rustc, package) = (eye.text("target")?, eye.text("rustc")?, eye.text("package")?);
    let count = eye.u16("number of implementations")?;
    let entries = (0..count).map(|_| eye.entry()).collect::<Result<Vec<_>, _>>()?;
    if eye.bytes.len() >= 4 || eye.bytes.iter().any(|byte| *byte != 0) {
        return Err(Unreadable::Malformed("something follows its end".into()));
    }
    if entries.is_empty() {
        return Err(Unreadable::Malformed("it names no implementation".into()));
    }
    Ok(Manifest { unwinds, target, rustc, package, implementations: entries })
}

struct Eye<'a> {
    bytes: &'a [u8],
}

impl<'a> Eye<'a> {
    fn take(&mut self, length: usize, what: &str) -> Result<&'a [u8], Unreadable> {
        let ends = || Unreadable::Malformed(format!("it ends within the {what}"));
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or_else(ends)?;
        self.bytes = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Unreadable> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }
    fn u16(&mut self, what: &str) -> Result<u16, Unreadable> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }
    fn u32(&mut self, what: &str) -> Result<u32, Unreadable> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }
    fn u64(&mut self, what: &str) -> Result<u64, Unreadable> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }
    /// A text that is not empty and can be shown on a terminal.
    fn text(&mut self, what: &str) -> Result<String, Unreadable> {
        let length = self.u16(what)?;
        let bytes = self.take(usize::from(length), what)?;
        let text = std::str::from_utf8(bytes).ok();
        let text = text.filter(|text| !text.is_empty() && !text.chars().any(char::is_control));
        let wrong = || Unreadable::Malformed(format!("its {what} is not a text"));
        text.map(str::to_owned).ok_or_else(wrong)
    }
    fn entry(&mut self) -> Result<ManifestEntry, Unreadable> {
        let interface = self.text("interface")?;
        let version = self.u32("version")?;
        let (state, name) = (self.text("state")?, self.text("implementation")?);
        let count = self.u16("number of methods")?;
        let methods = (0..count)
            .map(|_| Ok((self.text("method")?, self.u64("hash")?, self.text("signature")?)))
            .collect::<Result<_, _>>()?;
        Ok(ManifestEntry { interface, version, state, name, methods })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COUNTER: Description = Description {
        interface: "counter",
        version: 2,
        state: "u64",
        methods: &[
            MethodDescription {
                name: "add",
                signature: "fn(&self, u64) -> u64",
                hash: 7,
                defaulted: false,
            },
            MethodDescription { name: "reset", signature: "fn(&self)", hash: 8, defaulted: true },
        ],
    };
    const EXPORTED: &[Exported] = &[Exported { interface: COUNTER, name: "fast" }];
    const LENGTH: usize = length(EXPORTED, "p 1");
    static NOTE: Note<LENGTH> = Note::new(EXPORTED, "p 1", UNWINDS);

    #[test]
    fn what_was_written_can_be_read() {
        let manifest = read(&NOTE.content).expect("it is well-formed");
        assert!(manifest.unwinds);
        assert_eq!((manifest.target.as_str(), manifest.package.as_str()), (TARGET, "p 1"));
        let [entry] = &manifest.implementations[..] else { panic!("{manifest:?}") };
        assert_eq!((entry.interface.as_str(), entry.version, &*entry.name), ("counter", 2, "fast"));
        assert_eq!(entry.methods[1], ("reset".to_owned(), 8, "fn(&self)".to_owned()));
    }

    #[test]
    fn every_truncation_is_refused() {
        for end in 0..LENGTH {
            assert!(read(&NOTE.content[..end]).is_err(), "{end} of {LENGTH}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(at in 0..LENGTH, byte: u8, noise in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = NOTE.content;
            bytes[at] = byte;
            let _ = read(&bytes);
            let _ = read(&noise);
            let _ = read(&[&bytes[..28.min(at)], &noise].concat());
        }
    }
}
