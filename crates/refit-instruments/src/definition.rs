//! The definitions of events: their names, and the meaning of the payload of their records.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::record::Record;

/// An event of which instruments write records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// Its number in records, which is not 0 and unique in its trace.
    pub id: u32,
    /// Its name: `Class::method` for objects, `part::what` for other parts of refit; applications
    /// choose their own.
    pub name: String,
    /// The instrument manager that it belongs to: `system`, or one of the user.
    pub manager: String,
    /// The role of the event in analyses.
    #[serde(default)]
    pub role: Role,
    /// The fields into which the payload is divided, from its first byte on. The rest of the
    /// payload has no meaning.
    #[serde(default)]
    pub fields: Vec<Field>,
}

/// The role of an event in analyses. Unknown roles, of later versions, are read as [`Role::Plain`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A request to an object or a server. The first field is its ID (64 bits), which links it to
    /// what delayed it.
    Request,
    /// A change or one of its phases. The first field is the ID of the change (64 bits).
    Change,
    /// A wait, from begin to end. Fields: the object or lock that is waited for (64 bits), and the
    /// thread that holds it (32 bits; 0: unknown). If the first field is called `change`, it is the
    /// ID of a change that delayed the enclosing request.
    Wait,
    /// The possession of something that others wait for, from begin to end. Field: the object or
    /// lock (64 bits).
    Hold,
    /// The thread got the processor. Field: the thread that had it before (32 bits; 0: none or
    /// unknown).
    SwitchIn,
    /// The thread lost the processor. Fields: the thread that has it now (32 bits), and 1 if the
    /// thread was preempted (32 bits).
    SwitchOut,
    /// A dump, from begin to end, during which all processors wait while their buffers are written.
    Dump,
    /// No role.
    #[default]
    #[serde(other)]
    Plain,
}

/// A part of the payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its meaning and width.
    pub kind: FieldKind,
}

/// The meaning and width of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FieldKind {
    /// 64 bits, unsigned.
    U64,
    /// 64 bits, signed.
    I64,
    /// 64 bits, floating point.
    F64,
    /// 64 bits, shown in hexadecimal.
    Address,
    /// 64 bits: ticks of the trace's clock, shown as a time.
    Ticks,
    /// 32 bits, unsigned, aligned to 4 bytes.
    U32,
    /// 32 bits, signed, aligned to 4 bytes.
    I32,
}

impl FieldKind {
    /// Returns the width in bytes.
    pub const fn width(self) -> usize {
        match self {
            Self::U64 | Self::I64 | Self::F64 | Self::Address | Self::Ticks => 8,
            Self::U32 | Self::I32 => 4,
        }
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// The value of a `U64` or `U32`.
    Unsigned(u64),
    /// The value of an `I64` or `I32`.
    Signed(i64),
    /// The value of an `F64`.
    Float(f64),
    /// The value of an `Address`.
    Address(u64),
    /// The value of a `Ticks`.
    Ticks(u64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(value) | Self::Ticks(value) => write!(f, "{value}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Address(value) => write!(f, "{value:#x}"),
        }
    }
}

impl Definition {
    /// Returns the class of the event: the part of its name before the last `::`, or the whole name
    /// if it contains none.
    pub fn class(&self) -> &str {
        self.name.rsplit_once("::").map_or(&self.name, |(class, _)| class)
    }

    /// Returns the names and values of the fields of a record of this event, in order. Fields that
    /// lie beyond the payload are omitted.
    pub fn values<'a>(&'a self, record: &Record) -> impl Iterator<Item = (&'a str, Value)> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&record.payload[0].to_le_bytes());
        bytes[8..].copy_from_slice(&record.payload[1].to_le_bytes());
        let mut at = 0;
        self.fields.iter().map_while(move |field| {
            let bytes = bytes.get(at..at + field.kind.width())?;
            at += field.kind.width();
            Some((field.name.as_str(), value(field.kind, bytes)))
        })
    }
}

/// Decodes a field. `bytes` must have the width of `kind`.
fn value(kind: FieldKind, bytes: &[u8]) -> Value {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let word = u64::from_le_bytes(word);
    match kind {
        FieldKind::U64 | FieldKind::U32 => Value::Unsigned(word),
        FieldKind::I64 => Value::Signed(word.cast_signed()),
        FieldKind::I32 => Value::Signed(i64::from((word as u32).cast_signed())),
        FieldKind::F64 => Value::Float(f64::from_bits(word)),
        FieldKind::Address => Value::Address(word),
        FieldKind::Ticks => Value::Ticks(word),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Phase, What};

    fn field(name: &str, kind: FieldKind) -> Field {
        Field { name: name.into(), kind }
    }

    #[test]
    fn fields_are_cut_from_the_payload_in_order_and_never_beyond_it() {
        let definition = Definition {
            id: 7,
            name: "Store::get".into(),
            manager: "kv".into(),
            role: Role::Plain,
            fields: vec![
                field("level", FieldKind::I32),
                field("count", FieldKind::U32),
                field("share", FieldKind::F64),
                field("beyond", FieldKind::U64),
            ],
        };
        let payload = [u64::from((-3_i32).cast_unsigned()) | 9 << 32, 0.5_f64.to_bits()];
        let record = Record { time: 1, what: What::new(7, Phase::Point), thread: 1, payload };
        let values: Vec<_> = definition.values(&record).collect();
        let expected = [
            ("level", Value::Signed(-3)),
            ("count", Value::Unsigned(9)),
            ("share", Value::Float(0.5)),
        ];
        assert_eq!(values, expected);
    }

    #[test]
    fn a_role_of_a_later_version_is_read_as_plain() {
        let text = r#"{"id":1,"name":"n","manager":"m","role":"teleport","new":1}"#;
        let definition: Definition = serde_json::from_str(text).expect("unknown parts are skipped");
        assert_eq!(definition.role, Role::Plain);
    }
}
