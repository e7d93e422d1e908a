//! The part of the protocol-buffer encoding that a writer needs:
//! <https://protobuf.dev/programming-guides/encoding/>.

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Message(Vec<u8>);

/// The kinds of fields in the encoding.
const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH: u32 = 2;

impl Message {
    pub(super) fn new() -> Message {
        Message::default()
    }

    /// Appends a `uint32`, `uint64`, `bool` or enumeration; also an `int32` or `int64` by its bits.
    pub(super) fn uint(mut self, field: u32, value: u64) -> Message {
        self.key(field, VARINT);
        self.varint(value);
        self
    }

    /// Appends an `int64`.
    pub(super) fn int(self, field: u32, value: i64) -> Message {
        self.uint(field, value.cast_unsigned())
    }

    /// Appends a `fixed64`.
    pub(super) fn fixed64(mut self, field: u32, value: u64) -> Message {
        self.key(field, FIXED64);
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a `double`.
    pub(super) fn double(self, field: u32, value: f64) -> Message {
        self.fixed64(field, value.to_bits())
    }

    /// Appends a `string`.
    pub(super) fn text(self, field: u32, text: &str) -> Message {
        self.bytes(field, text.as_bytes())
    }

    /// Appends a nested message.
    pub(super) fn message(self, field: u32, message: &Message) -> Message {
        self.bytes(field, &message.0)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn bytes(mut self, field: u32, bytes: &[u8]) -> Message {
        self.key(field, LENGTH);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn key(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_written_as_the_encoding_guide_shows_them() {
        assert_eq!(Message::new().uint(1, 150).as_bytes(), [0x08, 0x96, 0x01]);
        let text = Message::new().text(2, "testing");
        assert_eq!(text.as_bytes(), [0x12, 0x07, b't', b'e', b's', b't', b'i', b'n', b'g']);
        let inner = Message::new().message(3, &Message::new().uint(1, 150));
        assert_eq!(inner.as_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        let minus_two = Message::new().int(1, -2);
        assert_eq!(minus_two.as_bytes()[1..], [0xfe, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
        let key = Message::new().fixed64(47, 1);
        assert_eq!(key.as_bytes(), [0xf9, 0x02, 1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
