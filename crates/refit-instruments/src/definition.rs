//! What an event is called, and what the payload of its records means.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::record::Record;

/// An event that instruments write records of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// Number of it in records: not 0, unique in its trace.
    pub id: u32,
    /// `Class::method` for what objects do, `part::what` for the rest of refit, as they like it for applications.
    pub name: String,
    /// The instrument manager that it belongs to: `system`, or one of the user.
    pub manager: String,
    /// What readers may make of it beyond showing it.
    #[serde(default)]
    pub role: Role,
    /// How the payload is cut, from its first byte on; what is left means nothing.
    #[serde(default)]
    pub fields: Vec<Field>,
}

/// What a reader may make of an event beyond showing it. Unknown ones, of later versions, are read as [`Role::Plain`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// A request to an object or a server; fields begin with its id (64 bits), which links it to what delayed it.
    Request,
    /// A swap or one of its phases; fields begin with the id of the change (64 bits).
    Change,
    /// Waiting, from begin to end; fields: what for (64 bits: an object or lock), for which thread (32 bits, 0: unknown).
    /// Where the first field is called `change`, it is the id of a change: that delayed the request it is in.
    Wait,
    /// Holding what others wait for, from begin to end; fields: what (64 bits).
    Hold,
    /// The thread got the processor. Fields: who had it (32 bits, 0: nobody, or unknown).
    SwitchIn,
    /// The thread lost the processor. Fields: who has it now (32 bits), 1 if the thread could have gone on (32 bits).
    SwitchOut,
    /// All processors write their buffers, from begin to end: time that is nobody's.
    Dump,
    /// Nothing.
    #[default]
    #[serde(other)]
    Plain,
}

/// A part of the payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// What it is called.
    pub name: String,
    /// What it means, and how wide it is.
    pub kind: FieldKind,
}

/// Meaning and width of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FieldKind {
    /// 64 bits, unsigned.
    U64,
    /// 64 bits, signed.
    I64,
    /// 64 bits, floating point.
    F64,
    /// 64 bits, shown in base 16.
    Address,
    /// 64 bits: ticks of the trace's clock, shown as a time.
    Ticks,
    /// 32 bits, unsigned; begins at a multiple of 4 bytes.
    U32,
    /// 32 bits, signed; begins at a multiple of 4 bytes.
    I32,
}

impl FieldKind {
    /// Width in bytes.
    pub const fn width(self) -> usize {
        match self {
            Self::U64 | Self::I64 | Self::F64 | Self::Address | Self::Ticks => 8,
            Self::U32 | Self::I32 => 4,
        }
    }
}

/// What a field of a record holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Of `U64`, `U32`.
    Unsigned(u64),
    /// Of `I64`, `I32`.
    Signed(i64),
    /// Of `F64`.
    Float(f64),
    /// Of `Address`.
    Address(u64),
    /// Of `Ticks`.
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
    /// The class that it belongs to: what is before the last `::` of its name, or the name if there is none.
    pub fn class(&self) -> &str {
        self.name.rsplit_once("::").map_or(&self.name, |(class, _)| class)
    }

    /// The fields of a record of this event, in order; those that lie beyond the payload are left out.
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

/// `bytes` is as wide as the kind says.
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
