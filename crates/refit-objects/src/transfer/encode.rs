//! The encoding of records as bytes, for state that goes to another build or another process.
//!
//! Magic, length, checksum, then the values in sequence, each with a tag. Length and checksum
//! distinguish a truncated or damaged record from a whole one. Depth and lengths are bounded, so
//! that no input, however hostile, exhausts the reader's stack or memory. The checksum protects
//! against accidents, not against attackers.

use super::value::{Field, Record, Value};
use crate::fnv::{FNV, fnv1a};

/// The first bytes; the last of them is the version of the format.
const MAGIC: &[u8; 8] = b"refitrc\x01";
const HEAD: usize = 24;

/// The maximum depth of nested records.
const MAX_DEPTH: usize = 64;

/// The reason that bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodingError {
    /// They do not begin like a record, or have an unknown version.
    #[error("this is not the state of an object, or it has an unknown version")]
    Foreign,
    /// There are fewer or more bytes than there should be.
    #[error(
        "the state has {found} bytes, but its header says {expected}: it was truncated or corrupted; export it again"
    )]
    Length {
        /// The number in the header.
        expected: u64,
        /// The actual number.
        found: u64,
    },
    /// The checksum is wrong.
    #[error("the state was damaged in the transfer: its checksum is wrong; export it again")]
    Damaged,
    /// The contents could not have been written by this format's writer.
    #[error("the state is invalid at byte {0}; it was not written in this format")]
    Nonsense(usize),
}

impl From<EncodingError> for super::TransferError {
    fn from(error: EncodingError) -> Self {
        super::TransferError(error.to_string())
    }
}

impl Record {
    /// Encodes the record.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        write_record(&mut body, self);
        let mut bytes = Vec::with_capacity(HEAD + body.len());
        bytes.extend(MAGIC);
        bytes.extend((body.len() as u64).to_le_bytes());
        bytes.extend(fnv1a(&body, FNV).to_le_bytes());
        bytes.append(&mut body);
        bytes
    }

    /// Decodes a record.
    ///
    /// # Errors
    /// The bytes are not exactly the output of [`Record::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EncodingError> {
        let Some((head, body)) = bytes.split_at_checked(HEAD) else {
            return Err(EncodingError::Foreign);
        };
        let word = |at: usize| head[at..at + 8].iter().rev().fold(0, |w, b| w << 8 | u64::from(*b));
        if !head.starts_with(MAGIC) {
            return Err(EncodingError::Foreign);
        }
        let (expected, found) = (word(8), body.len() as u64);
        if expected != found {
            return Err(EncodingError::Length { expected, found });
        }
        if word(16) != fnv1a(body, FNV) {
            return Err(EncodingError::Damaged);
        }
        let mut reader = Reader { rest: body, len: body.len() };
        let record = reader.record(0)?;
        if reader.rest.is_empty() { Ok(record) } else { Err(reader.nonsense()) }
    }
}

fn write_len(out: &mut Vec<u8>, len: usize) {
    out.extend((len as u64).to_le_bytes());
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_len(out, bytes.len());
    out.extend(bytes);
}

fn write_record(out: &mut Vec<u8>, record: &Record) {
    write_bytes(out, record.name.as_bytes());
    write_len(out, record.fields.len());
    for Field { names, type_name, value } in &record.fields {
        write_len(out, names.len());
        names.iter().for_each(|name| write_bytes(out, name.as_bytes()));
        write_bytes(out, type_name.as_bytes());
        write_value(out, value);
    }
}

fn write_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Nothing => out.push(0),
        Value::Bool(b) => out.extend([1, u8::from(*b)]),
        Value::Unsigned(n) => {
            out.push(2);
            out.extend(n.to_le_bytes());
        }
        Value::Signed(n) => {
            out.push(3);
            out.extend(n.to_le_bytes());
        }
        Value::Float(x) => {
            out.push(4);
            out.extend(x.to_bits().to_le_bytes());
        }
        Value::Text(text) => {
            out.push(5);
            write_bytes(out, text.as_bytes());
        }
        Value::Bytes(bytes) => {
            out.push(6);
            write_bytes(out, bytes);
        }
        Value::List(items) => {
            out.push(7);
            write_len(out, items.len());
            items.iter().for_each(|item| write_value(out, item));
        }
        Value::Record(record) => {
            out.push(8);
            write_record(out, record);
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    fn nonsense(&self) -> EncodingError {
        EncodingError::Nonsense(HEAD + self.len - self.rest.len())
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], EncodingError> {
        let (taken, rest) = self.rest.split_at_checked(n).ok_or_else(|| self.nonsense())?;
        self.rest = rest;
        Ok(taken)
    }

    fn word(&mut self) -> Result<u64, EncodingError> {
        Ok(self.take(8)?.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    /// Returns a number of items, each of which takes at least one byte, so that a larger number is
    /// an error.
    fn count(&mut self) -> Result<usize, EncodingError> {
        let count = usize::try_from(self.word()?).ok().filter(|n| *n <= self.rest.len());
        count.ok_or_else(|| self.nonsense())
    }

    fn bytes(&mut self) -> Result<&'a [u8], EncodingError> {
        let len = self.count()?;
        self.take(len)
    }

    fn text(&mut self) -> Result<String, EncodingError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.nonsense())
    }

    fn record(&mut self, depth: usize) -> Result<Record, EncodingError> {
        if depth > MAX_DEPTH {
            return Err(self.nonsense());
        }
        let name = self.text()?;
        let fields = (0..self.count()?).map(|_| self.field(depth)).collect::<Result<_, _>>()?;
        Ok(Record { name, fields })
    }

    fn field(&mut self, depth: usize) -> Result<Field, EncodingError> {
        let names = (0..self.count()?).map(|_| self.text()).collect::<Result<_, _>>()?;
        Ok(Field { names, type_name: self.text()?, value: self.value(depth + 1)? })
    }

    fn value(&mut self, depth: usize) -> Result<Value, EncodingError> {
        if depth > MAX_DEPTH {
            return Err(self.nonsense());
        }
        Ok(match self.take(1)?[0] {
            0 => Value::Nothing,
            1 => Value::Bool(self.take(1)?[0] != 0),
            2 => Value::Unsigned(self.word()?),
            3 => Value::Signed(self.word()?.cast_signed()),
            4 => Value::Float(f64::from_bits(self.word()?)),
            5 => Value::Text(self.text()?),
            6 => Value::Bytes(self.bytes()?.to_vec()),
            7 => {
                let count = self.count()?;
                Value::List((0..count).map(|_| self.value(depth + 1)).collect::<Result<_, _>>()?)
            }
            8 => Value::Record(self.record(depth + 1)?),
            _ => return Err(self.nonsense()),
        })
    }
}
